// Computes extents of launches: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda::backward {
Launch plan_launch(Kernel kernel, const BackwardParams& params) noexcept {
  const StageParams& p = params.stage;
  const bool packed = p.cu_seqlens.data != nullptr;
  const int64_t chunks = device::chunk_slots(p);
  const int64_t rows = packed ? p.T : p.N * p.T;
  const int64_t slices = (p.V + device::kPlainColumns - 1) / device::kPlainColumns;
  switch (kernel) {
    case Kernel::kPrepare:
      return {(prepared_tokens(params) * prepare_units(params) + kWarps - 1) / kWarps, kThreads, 0};
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
