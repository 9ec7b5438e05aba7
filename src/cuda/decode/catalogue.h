// Lists the kernels of recurrent_step and layer_decode on CUDA.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_CATALOGUE_H_
#define SLUICE_CUDA_DECODE_CATALOGUE_H_

#include "cuda/catalogue.h"

namespace sluice::cuda::decode {

/// Steps of the delta rule, fastest kernel first; with a replay ring there are other kernels.
Catalogue<core::DeltaRuleProblem> step_kernels() noexcept;
Catalogue<core::DeltaRuleProblem> replay_step_kernels() noexcept;

/// Steps of whole layers, likewise.
Catalogue<core::LayerProblem> layer_kernels() noexcept;
Catalogue<core::LayerProblem> replay_layer_kernels() noexcept;

/// The backend's entries: a call is one launch without workspace, unless it is a layer that falls
/// back on layer_prefill's kernels.
core::Operator<core::DeltaRuleProblem> recurrent_step_operator() noexcept;
core::Operator<core::LayerProblem> layer_decode_operator() noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_CATALOGUE_H_
