// Declares the operators of the reference: bytes of scratch where one needs any, and the operator.
// Each runs its sequences, heads or chunks one after another, in float64.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_OPERATORS_HPP_
#define SLUICE_REF_OPERATORS_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// chunk_forward and recurrent_step: sequences, heads, states and slots around a form. Form:
/// RecurrentForm or ChunkForm; per-token states (state_writes PER_TOKEN) need RecurrentForm.
/// Scratch: one state and one block of tokens.
template <class Form>
size_t delta_rule_workspace(const core::DeltaRuleProblem& problem) noexcept;
template <class Form>
void delta_rule(const core::DeltaRuleProblem& problem, Arena arena) noexcept;

/// Steps with a replay buffer; the workspace is that of RecurrentForm.
void replay_steps(const core::DeltaRuleProblem& problem, Arena arena) noexcept;

/// Gradients of the recurrence, token by token, independent of the chunk form. Scratch: about
/// 2 sqrt(T) states, and the gradients of q and k of one key head.
size_t chunk_backward_workspace(const core::ChunkBackwardProblem& problem) noexcept;
void chunk_backward(const core::ChunkBackwardProblem& problem, Arena arena) noexcept;

/// States of pieces from their maps. Scratch: two states.
size_t state_fold_workspace(const core::StateFoldProblem& problem) noexcept;
void state_fold(const core::StateFoldProblem& problem, Arena arena) noexcept;

/// The stages of the chunk form around the equations of forms.hpp. Scratch: the matrices of
/// one chunk.
size_t chunk_stage_workspace(const core::ChunkStageProblem& problem) noexcept;
void chunk_stage(const core::ChunkStageProblem& problem, Arena arena) noexcept;

/// The short causal convolution and its state (docs/math.md section 4).
void causal_conv1d(const core::CausalConvProblem& problem) noexcept;

/// Gated RMSNorm, norm before gate (docs/math.md section 5): out = x rsqrt(mean(x^2) + eps) *
/// weight * act(z) over rows of V, one rounding where stored.
void gated_rms_norm(const core::GatedNormProblem& problem) noexcept;

/// The row at the first four indices `row` of problem.out. problem.x may be a float64 view that
/// stands for a tensor of `rounded_to`: with ROUND_INPUT and ROUND_HF it is rounded to that first
/// (x of that dtype does not change), with ROUND_HF the normalised x as well.
void gated_rms_norm_row(const core::GatedNormProblem& problem, const int64_t (&row)[4],
                        sluice_dtype rounded_to) noexcept;

/// Gradients of the two (docs/math.md section 10). Scratch of the norm's: a row of sums.
void causal_conv1d_backward(const core::CausalConvBackwardProblem& problem) noexcept;
size_t gated_rms_norm_backward_workspace(const core::GatedNormBackwardProblem& problem) noexcept;
void gated_rms_norm_backward(const core::GatedNormBackwardProblem& problem, Arena arena) noexcept;

/// Convolution, delta rule (token by token) and gated norm. Between the parts everything stays in
/// float64; only norm.rounding may ask for a rounding to out's dtype. Scratch: the convolved q, k,
/// v and the core output of all rows, and the delta rule's own.
size_t layer_workspace(const core::LayerProblem& problem) noexcept;
void layer(const core::LayerProblem& problem, Arena arena) noexcept;

/// Gradients of that, by those of its parts. Scratch: besides, the gradients by the parts' outputs.
size_t layer_backward_workspace(const core::LayerBackwardProblem& problem) noexcept;
void layer_backward(const core::LayerBackwardProblem& problem, Arena arena) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_OPERATORS_HPP_
