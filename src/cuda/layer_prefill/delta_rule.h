// Names the kernels that a layer's delta rule is planned by.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LAYER_PREFILL_DELTA_RULE_H_
#define SLUICE_CUDA_LAYER_PREFILL_DELTA_RULE_H_

#include "cuda/catalogue.h"

namespace sluice::cuda {

/// Those of chunk_forward, or of recurrent_step for LAYER_DECODE, which comes here where no kernel of
/// its own takes it.
Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op op) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LAYER_PREFILL_DELTA_RULE_H_
