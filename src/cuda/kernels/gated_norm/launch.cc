// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/pieces.h"

namespace sluice::cuda::gated_norm {
namespace {

/// WHY a bound: row numbers plus a grid's worth of rows stay within 32 bits.
constexpr uint32_t kMaxGrid = 1u << 20;
/// Rows of a lane group of the packed kernel at a time.
constexpr uint32_t kTogether = 2;

int launch_one(NormParams p, void* stream) noexcept {
  const bool packs = by_packs(p);
  plan_launch(&p);
  const auto at_once = packs ? kTogether * static_cast<uint32_t>(kThreads / p.lanes) : kWarps;
  const dim3 grid(std::min((p.rows + at_once - 1) / at_once, kMaxGrid));
  void* arguments[] = {&p};
  return cudaLaunchKernel(packs ? rows_by_packs() : rows_by_elements(), grid, dim3(kThreads),
                          arguments, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace

int load_kernels() noexcept {
  for (const auto kernel : {rows_by_packs, rows_by_elements}) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(const NormParams& params, void* stream) noexcept {
  return in_pieces(params, kMaxRows, [&](const NormParams& p) { return launch_one(p, stream); });
}

}  // namespace sluice::cuda::gated_norm
