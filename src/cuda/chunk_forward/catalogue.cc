// Lists the kernels of chunk_forward: Hopper's own, then the one for everything else.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/chunk_forward/fused.h"
#include "cuda/chunk_forward/generic.h"

namespace sluice::cuda {

Catalogue<core::DeltaRuleProblem> chunk_forward_catalogue() noexcept {
  static const Kernel<core::DeltaRuleProblem> kernels[] = {fused_kernels()[0], fused_kernels()[1],
                                                           fused_kernels()[2],
                                                           generic_kernel("chunk_forward.generic")};
  return kernels;
}

}  // namespace sluice::cuda
