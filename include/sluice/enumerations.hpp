// Defines the choices of the operators, and their words. Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_ENUMERATIONS_HPP_
#define SLUICE_ENUMERATIONS_HPP_

#include <cstdint>

#include "sluice/sluice.h"

namespace sluice {

/// sluice_gate_space: what `gate` holds.
enum class GateSpace : int32_t {
  kLog,  ///< g = ln(alpha), g <= 0
  kLinear,  ///< alpha = exp(g), 0 <= alpha <= 1
  kRaw,  ///< a: g = -exp(A_log) softplus(a + dt_bias)
  kRawBounded,  ///< a: g = gate_lower_bound sigmoid(exp(A_log) (a + dt_bias))
};
static_assert(static_cast<int>(GateSpace::kLog) == SLUICE_GATE_LOG);
static_assert(static_cast<int>(GateSpace::kLinear) == SLUICE_GATE_LINEAR);
static_assert(static_cast<int>(GateSpace::kRaw) == SLUICE_GATE_RAW);
static_assert(static_cast<int>(GateSpace::kRawBounded) == SLUICE_GATE_RAW_BOUNDED);
inline constexpr const char* kGateSpaceWords[] = {"log", "linear", "raw", "raw_bounded", nullptr};

/// sluice_beta_space: what `beta` holds.
enum class BetaSpace : int32_t {
  kValue,  ///< the write strength itself
  kLogit,  ///< b: beta = sigmoid(b)
};
static_assert(static_cast<int>(BetaSpace::kValue) == SLUICE_BETA_VALUE);
static_assert(static_cast<int>(BetaSpace::kLogit) == SLUICE_BETA_LOGIT);
inline constexpr const char* kBetaSpaceWords[] = {"value", "logit", nullptr};

/// sluice_eigenvalues: range of the transition's eigenvalues along k.
enum class Eigenvalues : int32_t {
  kPositive,  ///< beta as given
  kNegative,  ///< 2 beta
};
static_assert(static_cast<int>(Eigenvalues::kPositive) == SLUICE_EIGENVALUES_POSITIVE);
static_assert(static_cast<int>(Eigenvalues::kNegative) == SLUICE_EIGENVALUES_NEGATIVE);
inline constexpr const char* kEigenvaluesWords[] = {"positive", "negative", nullptr};

/// sluice_qk_norm: normalisation of q and k inside.
enum class QkNorm : int32_t {
  kNone,  ///< none
  kL2,  ///< x rsqrt(sum(x^2) + l2norm_eps)
};
static_assert(static_cast<int>(QkNorm::kNone) == SLUICE_QK_NORM_NONE);
static_assert(static_cast<int>(QkNorm::kL2) == SLUICE_QK_NORM_L2);
inline constexpr const char* kQkNormWords[] = {"none", "l2", nullptr};

/// sluice_head_map: which key head value head h reads.
enum class HeadMap : int32_t {
  kBlock,  ///< h // r
  kCyclic,  ///< h mod H (ggml)
};
static_assert(static_cast<int>(HeadMap::kBlock) == SLUICE_HEAD_MAP_BLOCK);
static_assert(static_cast<int>(HeadMap::kCyclic) == SLUICE_HEAD_MAP_CYCLIC);
inline constexpr const char* kHeadMapWords[] = {"block", "cyclic", nullptr};

/// sluice_state_layout: order of a state's inner dimensions.
enum class StateLayout : int32_t {
  kKV,  ///< [..,K,V]
  kVK,  ///< [..,V,K]
};
static_assert(static_cast<int>(StateLayout::kKV) == SLUICE_STATE_KV);
static_assert(static_cast<int>(StateLayout::kVK) == SLUICE_STATE_VK);
inline constexpr const char* kStateLayoutWords[] = {"kv", "vk", nullptr};

/// sluice_rule: the recurrence.
enum class Rule : int32_t {
  kGatedDelta,  ///< S <- alpha S + k (beta (v - (alpha S)^T k))^T
  kLinearAttention,  ///< S <- alpha S + k v^T (simple GLA); beta must be absent
};
static_assert(static_cast<int>(Rule::kGatedDelta) == SLUICE_RULE_GATED_DELTA);
static_assert(static_cast<int>(Rule::kLinearAttention) == SLUICE_RULE_LINEAR_ATTENTION);
inline constexpr const char* kRuleWords[] = {"gated_delta", "linear_attention", nullptr};

/// sluice_stage: a stage of the chunk form.
enum class Stage : int32_t {
  kChunkCumsum,  ///< gate -> g_cumsum: sums G of the log gates inside each chunk
  kScaledDotKkt,  ///< k, beta, G -> A: beta_i exp(G_i - G_j) (k_i . k_j), i > j
  kSolveTril,  ///< A -> A_inverse: (I + A)^-1 of the strict `triangle`
  kWyFast,  ///< k, v, beta, G, A_inverse -> u = A_inverse diag(beta) v, w = A_inverse diag(beta exp G) k
  kChunkH,  ///< k, u, w, G, initial_state -> h = S (the state that enters each chunk), v_new = u - w S, final_state
  kChunkO,  ///< q, k, v_new, G, h -> o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v_new); without h it makes the states itself
  kCumsumKkt,  ///< gate, k, beta -> g_cumsum, A: the first two in one
  kSolveWy,  ///< k, v, beta, G, A -> u, w: the next two in one; A_inverse is written only where it is given
};
static_assert(static_cast<int>(Stage::kChunkCumsum) == SLUICE_STAGE_CHUNK_CUMSUM);
static_assert(static_cast<int>(Stage::kScaledDotKkt) == SLUICE_STAGE_SCALED_DOT_KKT);
static_assert(static_cast<int>(Stage::kSolveTril) == SLUICE_STAGE_SOLVE_TRIL);
static_assert(static_cast<int>(Stage::kWyFast) == SLUICE_STAGE_WY_FAST);
static_assert(static_cast<int>(Stage::kChunkH) == SLUICE_STAGE_CHUNK_H);
static_assert(static_cast<int>(Stage::kChunkO) == SLUICE_STAGE_CHUNK_O);
static_assert(static_cast<int>(Stage::kCumsumKkt) == SLUICE_STAGE_CUMSUM_KKT);
static_assert(static_cast<int>(Stage::kSolveWy) == SLUICE_STAGE_SOLVE_WY);
inline constexpr const char* kStageWords[] = {"chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast", "chunk_h", "chunk_o", "cumsum_kkt", "solve_wy", nullptr};

/// sluice_direction: which way chunk_cumsum sums, chunk_summary and state_fold carry.
enum class Direction : int32_t {
  kForward,  ///< tokens up to and with i; states
  kReverse,  ///< tokens from i on; gradients of states
};
static_assert(static_cast<int>(Direction::kForward) == SLUICE_DIRECTION_FORWARD);
static_assert(static_cast<int>(Direction::kReverse) == SLUICE_DIRECTION_REVERSE);
inline constexpr const char* kDirectionWords[] = {"forward", "reverse", nullptr};

/// sluice_triangle: which strict triangle of A solve_tril reads.
enum class Triangle : int32_t {
  kLower,  ///< A_ij, i > j
  kUpper,  ///< A_ij, i < j
};
static_assert(static_cast<int>(Triangle::kLower) == SLUICE_TRIANGLE_LOWER);
static_assert(static_cast<int>(Triangle::kUpper) == SLUICE_TRIANGLE_UPPER);
inline constexpr const char* kTriangleWords[] = {"lower", "upper", nullptr};

/// sluice_matrices: how the matrices of solve_tril lie.
enum class Matrices : int32_t {
  kChunks,  ///< [B,T,HV,C]
  kBatched,  ///< [..,n,n]
};
static_assert(static_cast<int>(Matrices::kChunks) == SLUICE_MATRICES_CHUNKS);
static_assert(static_cast<int>(Matrices::kBatched) == SLUICE_MATRICES_BATCHED);
inline constexpr const char* kMatricesWords[] = {"chunks", "batched", nullptr};

/// sluice_split: how a GPU spreads a sequence; CPUs ignore it.
enum class Split : int32_t {
  kAuto,  ///< the library's choice
  kNever,  ///< one CTA per value head and 128 columns of V
  kColumns,  ///< one CTA per value head and 64 columns of V
  kSegments,  ///< split_value segments a sequence
  kLength,  ///< segments of split_value tokens
};
static_assert(static_cast<int>(Split::kAuto) == SLUICE_SPLIT_AUTO);
static_assert(static_cast<int>(Split::kNever) == SLUICE_SPLIT_NEVER);
static_assert(static_cast<int>(Split::kColumns) == SLUICE_SPLIT_COLUMNS);
static_assert(static_cast<int>(Split::kSegments) == SLUICE_SPLIT_SEGMENTS);
static_assert(static_cast<int>(Split::kLength) == SLUICE_SPLIT_LENGTH);
inline constexpr const char* kSplitWords[] = {"auto", "never", "columns", "segments", "length", nullptr};

/// sluice_history: may segments begin from zero where a head has forgotten what came before.
enum class History : int32_t {
  kAuto,  ///< where that is sure to hold
  kStrict,  ///< they may not
  kForget,  ///< they may: the caller says that it holds
};
static_assert(static_cast<int>(History::kAuto) == SLUICE_HISTORY_AUTO);
static_assert(static_cast<int>(History::kStrict) == SLUICE_HISTORY_STRICT);
static_assert(static_cast<int>(History::kForget) == SLUICE_HISTORY_FORGET);
inline constexpr const char* kHistoryWords[] = {"auto", "strict", "forget", nullptr};

/// sluice_state_writes: which states steps write.
enum class StateWrites : int32_t {
  kLast,  ///< the state after the last token
  kPerToken,  ///< the state after token t, to column t of write_slots [N, >= T]
  kNone,  ///< none: outputs only
};
static_assert(static_cast<int>(StateWrites::kLast) == SLUICE_STATE_WRITE_LAST);
static_assert(static_cast<int>(StateWrites::kPerToken) == SLUICE_STATE_WRITE_PER_TOKEN);
static_assert(static_cast<int>(StateWrites::kNone) == SLUICE_STATE_WRITE_NONE);
inline constexpr const char* kStateWritesWords[] = {"last", "per_token", "none", nullptr};

/// sluice_activation: an activation.
enum class Activation : int32_t {
  kNone,  ///< x
  kSilu,  ///< x sigmoid(x)
  kSigmoid,  ///< sigmoid(x)
};
static_assert(static_cast<int>(Activation::kNone) == SLUICE_ACTIVATION_NONE);
static_assert(static_cast<int>(Activation::kSilu) == SLUICE_ACTIVATION_SILU);
static_assert(static_cast<int>(Activation::kSigmoid) == SLUICE_ACTIVATION_SIGMOID);
inline constexpr const char* kActivationWords[] = {"none", "silu", "sigmoid", nullptr};

/// sluice_conv_state_form: form of a convolution state of L columns.
enum class ConvStateForm : int32_t {
  kShift,  ///< oldest column first
  kRing,  ///< the input at position p is in column p mod L
};
static_assert(static_cast<int>(ConvStateForm::kShift) == SLUICE_CONV_STATE_SHIFT);
static_assert(static_cast<int>(ConvStateForm::kRing) == SLUICE_CONV_STATE_RING);
inline constexpr const char* kConvStateFormWords[] = {"shift", "ring", nullptr};

/// sluice_ring_fold: when a step folds entries of the replay ring into the state.
enum class RingFold : int32_t {
  kAuto,  ///< where the next call's tokens would not fit
  kAlways,  ///< in this call
};
static_assert(static_cast<int>(RingFold::kAuto) == SLUICE_RING_FOLD_AUTO);
static_assert(static_cast<int>(RingFold::kAlways) == SLUICE_RING_FOLD_ALWAYS);
inline constexpr const char* kRingFoldWords[] = {"auto", "always", nullptr};

/// sluice_norm_rounding: where gated RMSNorm rounds.
enum class NormRounding : int32_t {
  kOnce,  ///< float32 to the end, one rounding (FLA)
  kHf,  ///< normalised x rounded to its dtype first; layers: core output first
  kInput,  ///< layers: core output rounded to out's dtype first (vLLM)
};
static_assert(static_cast<int>(NormRounding::kOnce) == SLUICE_NORM_ROUND_ONCE);
static_assert(static_cast<int>(NormRounding::kHf) == SLUICE_NORM_ROUND_HF);
static_assert(static_cast<int>(NormRounding::kInput) == SLUICE_NORM_ROUND_INPUT);
inline constexpr const char* kNormRoundingWords[] = {"once", "hf", "input", nullptr};

/// sluice_packing: packing of a layer's projections.
enum class Packing : int32_t {
  kFlat,  ///< Qwen3.5: qkv = [q | k | v], z, b, a
  kInterleaved,  ///< Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a]
  kSeparate,  ///< Kimi Linear: q, k and v of three projections, each convolved by itself
};
static_assert(static_cast<int>(Packing::kFlat) == SLUICE_PACKING_FLAT);
static_assert(static_cast<int>(Packing::kInterleaved) == SLUICE_PACKING_INTERLEAVED);
static_assert(static_cast<int>(Packing::kSeparate) == SLUICE_PACKING_SEPARATE);
inline constexpr const char* kPackingWords[] = {"flat", "interleaved", "separate", nullptr};

/// sluice_implementation: which implementation runs.
enum class Implementation : int32_t {
  kAuto,  ///< by the views' device, or by SLUICE_IMPL
  kReference,  ///< float64, token by token
  kReferenceChunked,  ///< float64, chunk form
  kCpu,  ///< CPU kernels
  kCuda,  ///< CUDA kernels
};
static_assert(static_cast<int>(Implementation::kAuto) == SLUICE_IMPL_AUTO);
static_assert(static_cast<int>(Implementation::kReference) == SLUICE_IMPL_REFERENCE);
static_assert(static_cast<int>(Implementation::kReferenceChunked) == SLUICE_IMPL_REFERENCE_CHUNKED);
static_assert(static_cast<int>(Implementation::kCpu) == SLUICE_IMPL_CPU);
static_assert(static_cast<int>(Implementation::kCuda) == SLUICE_IMPL_CUDA);
inline constexpr const char* kImplementationWords[] = {"auto", "reference", "reference-chunked", "cpu", "cuda", nullptr};

}  // namespace sluice

#endif  // SLUICE_ENUMERATIONS_HPP_
