// Finds the kernels that compute a layer's delta rule.
// SPDX-License-Identifier: Apache-2.0

#include "cuda/catalogues.h"

namespace sluice::cuda {

Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op op) noexcept {
  if (op == SLUICE_OP_LAYER_PREFILL) return chunk_forward_catalogue();
  return recurrent_step_catalogue();
}

}  // namespace sluice::cuda
