// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/launch.h"

#include "cuda/follow.h"
#include "cuda/kernels/conv1d/instances.h"
#include "cuda/kernels/conv1d/pieces.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kMaxWarps = int64_t{1} << 32;  ///< of a launch: 2^30 CTAs

/// By Body.
constexpr const void* (*kKernels[])() noexcept = {
    rows_of_floats,   rows_of_bfloats, rows_of_halves,     rows_of_elements,
    lines_of_bfloats, lines_of_halves, lines_of_elements,  heads_of_floats,
    heads_of_bfloats, heads_of_halves, updates_of_bfloats, updates_of_halves};

}  // namespace

int load_kernels() noexcept {
  for (const auto kernel : kKernels) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(const ConvParams& params, const Target& target, void* stream) noexcept {
  const auto launch_one = [&](Body body, ConvParams p) {
    const auto ctas = static_cast<unsigned>((p.warps - p.first_warp + kWarps - 1) / kWarps);
    return launch_following(kKernels[static_cast<int>(body)](), dim3(ctas), kThreads,
                            shared_bytes(body, p), &p, target, stream);
  };
  return in_launches(params, target.multiprocessors, kMaxWarps, launch_one);
}

}  // namespace sluice::cuda::conv1d
