// Computes extents of launches: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda::backward {
namespace {

int64_t rows_of_window(const BackwardParams& params) noexcept {
  const bool packed = params.stage.cu_seqlens.data != nullptr;
  return std::min(window_rows(params.window, packed), params.stage.T - params.window.first);
}

}  // namespace

Launch plan_launch(Kernel kernel, const BackwardParams& params) noexcept {
  const StageParams& p = params.stage;
  const bool packed = p.cu_seqlens.data != nullptr;
  const int64_t chunks = device::chunk_slots(p);
  const int64_t all = packed ? p.T : p.N * p.T,
                rows = params.window.exists() ? rows_of_window(params) : all;
  const int64_t slices = (p.V + device::kPlainColumns - 1) / device::kPlainColumns;
  switch (kernel) {
    case Kernel::kPrepare:
    case Kernel::kKeys:
      return {rows, kThreads, 0};
    case Kernel::kLocal:
      return {chunks * p.HV, kThreads, kLocalBytes};
    case Kernel::kChain:
      return {p.N * p.HV * slices, kThreads, kChainBytes + device::plain_chain_bytes(p.K)};
    case Kernel::kGradients:
      return {chunks * p.HV, kThreads, kGradientBytes};
    default:
      return {p.HV, kThreads, 4 * kWarps};
  }
}

}  // namespace sluice::cuda::backward
