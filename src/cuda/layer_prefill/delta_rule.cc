// Finds the kernels that compute a layer's delta rule.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/layer_prefill/delta_rule.h"

#include "cuda/catalogues.h"
#include "cuda/chunk_forward/generic.h"

namespace sluice::cuda {
namespace {

constexpr Kernel<core::DeltaRuleProblem> kSteps[] = {generic_kernel("recurrent_step.generic")};

}  // namespace

Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op op) noexcept {
  if (op == SLUICE_OP_LAYER_PREFILL) return chunk_forward_catalogue();
  return kSteps;
}

}  // namespace sluice::cuda
