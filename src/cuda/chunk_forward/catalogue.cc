// Lists the kernels of chunk_forward: Hopper's own, then the one for everything else.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/chunk_forward/rows.h"

namespace sluice::cuda {

Catalogue<core::DeltaRuleProblem> chunk_forward_catalogue() noexcept {
  static const Kernel<core::DeltaRuleProblem> kernels[] = {
      one_launch_kernels()[0], one_launch_kernels()[1], one_launch_kernels()[2],
      generic_kernel("chunk_forward.generic")};
  return kernels;
}

}  // namespace sluice::cuda
