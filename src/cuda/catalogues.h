// Names the catalogues of all operators: what the backend's table is made of, and what an operator
// made of others plans its parts by.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CATALOGUES_H_
#define SLUICE_CUDA_CATALOGUES_H_

#include "cuda/catalogue.h"

namespace sluice::cuda {

Catalogue<core::DeltaRuleProblem> chunk_forward_catalogue() noexcept;
Catalogue<core::DeltaRuleProblem> recurrent_step_catalogue() noexcept;
Catalogue<core::CausalConvProblem> causal_conv1d_catalogue() noexcept;
Catalogue<core::GatedNormProblem> gated_rms_norm_catalogue() noexcept;
/// Its one row takes layer_decode too, whose last one it is.
Catalogue<core::LayerProblem> layer_prefill_catalogue() noexcept;
Catalogue<core::LayerProblem> layer_decode_catalogue() noexcept;
Catalogue<core::ChunkStageProblem> chunk_stage_catalogue() noexcept;
Catalogue<core::ChunkBackwardProblem> chunk_backward_catalogue() noexcept;
Catalogue<core::CausalConvBackwardProblem> causal_conv1d_backward_catalogue() noexcept;
Catalogue<core::GatedNormBackwardProblem> gated_rms_norm_backward_catalogue() noexcept;
Catalogue<core::LayerBackwardProblem> layer_backward_catalogue() noexcept;
Catalogue<core::ChunkSummaryProblem> chunk_summary_catalogue() noexcept;
Catalogue<core::StateFoldProblem> state_fold_catalogue() noexcept;

/// Those of chunk_forward, or of recurrent_step for LAYER_DECODE, which comes here where no kernel of
/// its own takes it.
Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op op) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CATALOGUES_H_
