// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

#include <cuda_runtime_api.h>

#include "cuda/follow.h"
#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/pieces.h"

namespace sluice::cuda::gated_norm {
namespace {

/// By Kernel.
constexpr const void* (*kKernels[])() noexcept = {
    four_bfloats,        four_halves,        one_bfloats,        one_halves,    even_bfloats_of_128,
    even_bfloats_of_256, even_halves_of_128, even_halves_of_256, rows_by_packs, rows_by_elements};

int launch_one(NormParams p, const Target& target, void* stream) noexcept {
  const Kernel kernel = plan_launch(target.multiprocessors, &p);
  const Extent extent{dim3(ctas_of(kernel, p)), kThreads, 0};
  return launch_following(kKernels[static_cast<int>(kernel)](), extent, target, stream, p);
}

}  // namespace

int load_kernels() noexcept {
  for (const auto kernel : kKernels) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(const NormParams& params, const Target& target, void* stream) noexcept {
  return in_pieces(params, kMaxRows,
                   [&](const NormParams& p) { return launch_one(p, target, stream); });
}

}  // namespace sluice::cuda::gated_norm
