// Declares the operators on the CPU: for each the bytes of scratch that it needs, an upper bound for
// any contents of cu_seqlens, and the operator itself, as sluice.h has it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_OPERATORS_HPP_
#define SLUICE_CPU_KERNELS_OPERATORS_HPP_

#include <cstddef>

#include "core/problem.hpp"

namespace sluice::cpu {

/// Parallel over sequences, key heads and, where those are few, value heads and panels of state
/// columns; results depend on neither the cut nor the threads.
size_t chunk_forward_workspace(const core::DeltaRuleProblem&) noexcept;
void chunk_forward(const core::DeltaRuleProblem&, void* scratch) noexcept;

/// Parallel over sequences and value heads.
size_t recurrent_step_workspace(const core::DeltaRuleProblem&) noexcept;
void recurrent_step(const core::DeltaRuleProblem&, void* scratch) noexcept;
/// The same of a problem whose replay buffer is present.
size_t replay_step_workspace(const core::DeltaRuleProblem&) noexcept;
void replay_step(const core::DeltaRuleProblem&, float* memory) noexcept;

/// Gradients of chunk_forward in float32. Parallel over sequences and value heads, then over rows
/// of key heads; results do not depend on the threads.
size_t chunk_backward_workspace(const core::ChunkBackwardProblem&) noexcept;
void chunk_backward(const core::ChunkBackwardProblem&, void* scratch) noexcept;

/// Parallel over chains and value heads, in plain float32. Scratch: two states a worker.
size_t state_fold_workspace(const core::StateFoldProblem&) noexcept;
void state_fold(const core::StateFoldProblem&, void* scratch) noexcept;

/// Parallel over chunks and heads; where states are carried, over sequences, value heads and panels
/// of state columns. Results depend on neither the cut nor the threads.
size_t chunk_stage_workspace(const core::ChunkStageProblem&) noexcept;
void chunk_stage(const core::ChunkStageProblem&, void* scratch) noexcept;

/// out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]) and the new states. float32 arithmetic,
/// fused multiply-adds in the order w = 0 .. W-1 on top of the bias, SiLU to about 2 ulp, one
/// rounding to out's dtype. An output's bits depend on its own inputs only. Tiles live on the
/// workers' stacks.
void causal_conv1d(const core::CausalConvProblem&) noexcept;

/// out = x rsqrt(mean(x^2) + eps) * weight * act(z), float32 arithmetic, one rounding to out's
/// dtype (with ROUND_HF also one of the normalised x to x's dtype). A row's bits depend on that row
/// only.
void gated_rms_norm(const core::GatedNormProblem&) noexcept;
/// The layer's norm: rows of [B,T,..] that belong to one of the delta rule's sequences. Rows of
/// padded sequences become zeros whatever x and z hold; rows of none are not touched. x is float32;
/// ROUND_HF and ROUND_INPUT round it to out's dtype first.
void layer_norm_rows(const core::GatedNormProblem&, const core::DeltaRuleProblem& delta) noexcept;

/// Gradients of the two in float32, one rounding where stored. Scratch: sums over 512 tokens, or 128
/// rows, where dweight or dbias is wanted.
size_t causal_conv1d_backward_workspace(const core::CausalConvBackwardProblem&) noexcept;
void causal_conv1d_backward(const core::CausalConvBackwardProblem&, void* scratch) noexcept;
size_t gated_rms_norm_backward_workspace(const core::GatedNormBackwardProblem&) noexcept;
void gated_rms_norm_backward(const core::GatedNormBackwardProblem&, void* scratch) noexcept;

/// causal_conv1d (three times), chunk_forward and the gated norm one after the other; the bits are
/// those of the operators called so, with q, k and v in qkv's dtype and the core output in float32
/// (ROUND_ONCE) or out's dtype (other roundings). They do not depend on core_out being asked for.
/// Scratch: convolved q, k and v in qkv's dtype, the core output in float32, chunk_forward's.
size_t layer_prefill_workspace(const core::LayerProblem&) noexcept;
void layer_prefill(const core::LayerProblem&, void* scratch) noexcept;

/// Gradients of that: convolutions and, unless the core output is given, chunk_forward once more;
/// then gated_rms_norm_backward, chunk_backward and causal_conv1d_backward. Scratch: convolved q, k
/// and v in qkv's dtype; the core output and gradients between the parts in float32; a part's own.
size_t layer_backward_workspace(const core::LayerBackwardProblem&) noexcept;
void layer_backward(const core::LayerBackwardProblem&, void* scratch) noexcept;

/// Convolution, gates, delta steps and gated norm of a (sequence, key head) while its data is in
/// cache, for at most 16 tokens a row. The bits are those of causal_conv1d, recurrent_step and
/// gated_rms_norm called one after the other, dtypes as in layer_prefill. With a replay buffer it is
/// these three, one after the other. Scratch: rows of one key head's q and k and one value head's v
/// and o, for each worker.
size_t layer_decode_workspace(const core::LayerProblem&) noexcept;
void layer_decode(const core::LayerProblem&, void* scratch) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_OPERATORS_HPP_
