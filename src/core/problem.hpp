// Defines problems: what validation makes of an operator's arguments, and all that a backend sees.
// Every member is checked and every default resolved, so backends contain no argument checks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_PROBLEM_HPP_
#define SLUICE_CORE_PROBLEM_HPP_

#include <cstdint>

#include "sluice/sluice.h"

namespace sluice::core {

using Tensor = sluice_tensor;

/// Most segments of a sequence that a caller or the environment may ask for.
constexpr int kMostSegmentsAskedFor = 4096;

/// Most sequences of a call: kernels count them in 32 bits.
constexpr int64_t kMostSequences = INT32_MAX;
/// (B T + N) heads widest^2 is below this in every problem, heads being HV and widest the largest of
/// K, V and C (in a convolution D, and the largest of W and L): backends compute sizes in int64 and
/// need not look for overflow.
constexpr int64_t kMostWork = int64_t{1} << 52;

/// True where an optional view was given.
constexpr bool present(const Tensor& tensor) noexcept { return tensor.data != nullptr; }

/// How the rows of [B,T,..] tensors make up N sequences.
struct Rows {
  int64_t B = 0;        ///< batch; 1 where packed
  int64_t T = 0;        ///< rows per batch entry
  int64_t N = 0;        ///< sequences: B, or cu_seqlens.shape[0] - 1
  Tensor cu_seqlens{};  ///< int32/int64 [N+1] or absent
  /// Host's bound on one sequence's tokens: T, or max_tokens of a packed decode call.
  int64_t max_tokens = 0;
  /// The caller's word that no packed sequence is longer, 0: none. Only speed depends on it.
  int64_t longest = 0;
};

/// Both delta rule operators: chunk_forward and recurrent_step are one recurrence.
/// gate and beta are rank 4 [B,T,HV/r,r] (value head h = (h / r, h % r)), so that the interleaved
/// packing of Qwen3-Next is a view; all other shapes are those of sluice.h. Of gate and key_gate
/// one is absent at least.
struct DeltaRuleProblem {
  sluice_op op = SLUICE_OP_CHUNK_FORWARD;  ///< CHUNK_FORWARD, CHUNK_BACKWARD, RECURRENT_STEP
  Rows rows;
  int64_t H = 0, HV = 0, K = 0, V = 0;
  int64_t r = 0;  ///< HV / H
  Tensor q{}, k{}, v{}, gate{}, beta{}, o{}, A_log{}, dt_bias{};
  Tensor key_gate{};  ///< [B,T,HV,K], inner stride 1; dt_bias is [HV,K] then, inner stride 1
  /// initial, final (= initial in steps unless given or state_writes is NONE), slots, layout.
  /// write_slots = read_slots where the caller gave none.
  sluice_state_io state{};
  Tensor num_accepted{};  ///< steps only
  /// Steps only; used where its k is present: then states are in place, num_accepted is absent.
  sluice_replay_ring ring{};
  Tensor checkpoints{}, checkpoint_slots{};
  int64_t checkpoint_every = 0;
  double scale = 0;
  double l2norm_eps = 0;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  double gate_lower_bound = 0;  ///< < 0, with RAW_BOUNDED, where A_log and dt_bias may be absent
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  double beta_factor = 1;  ///< 2 with negative eigenvalues
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_state_writes state_writes = SLUICE_STATE_WRITE_LAST;
  sluice_split split = SLUICE_SPLIT_AUTO;  ///< chunk_forward and chunk_backward, and so the next
  int32_t split_value = 0;
  sluice_history history = SLUICE_HISTORY_AUTO;  ///< chunk_forward only

  /// Key head that value head h reads.
  int64_t key_head(int64_t h) const noexcept {
    return head_map == SLUICE_HEAD_MAP_BLOCK ? h / r : h % H;
  }
};

/// chunk_backward. Shapes are those of sluice.h, but gradients by gate and beta have rank 4, as the
/// views themselves have; dgate is [B,T,HV,K] with key-wise gates.
struct ChunkBackwardProblem {
  /// The forward call without its outputs: o, state.final, slots and checkpoints are absent.
  DeltaRuleProblem forward;
  Tensor d_o{}, d_final{};
  Tensor dq{}, dk{}, dv{}, dgate{}, dbeta{}, dA_log{}, ddt_bias{}, dinitial{};
};

/// chunk_summary: the maps of the pieces that rows are made of.
struct ChunkSummaryProblem {
  /// The forward call without its outputs: o, all of state, slots and checkpoints are absent. FORWARD
  /// has no q of its own: it is k then.
  DeltaRuleProblem forward;
  Tensor d_o{};     ///< REVERSE only
  Tensor wanted{};  ///< [N]: kWantsAddend | kWantsTransition; absent: both
  Tensor transition{}, addend{}, forgotten{};
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;
};
constexpr int64_t kWantsAddend = 1, kWantsTransition = 2;

/// state_fold: P pieces, N chains of steps, E states that enter pieces.
struct StateFoldProblem {
  int64_t P = 0, N = 0, S = 0, E = 0;
  int64_t HV = 0, K = 0, V = 0;
  Tensor transition{}, addend{}, forgotten{};
  Tensor cu_chains{}, route_pieces{}, route_states{};
  Tensor initial{}, entering{}, final{};
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;
  sluice_state_layout layout = SLUICE_STATE_KV;
};

/// Whether a fold has a state to write. One that has none may have any number of heads, as no view of
/// it lies in memory, and is done without looking at them.
constexpr bool writes_states(const StateFoldProblem& p) noexcept {
  return present(p.final) || (present(p.entering) && p.E > 0);
}

/// Chunks of C tokens that `tokens` tokens make; the last one may be shorter.
constexpr int64_t chunk_count(int64_t tokens, int64_t C) noexcept { return (tokens + C - 1) / C; }

/// Name of a stage in messages and kernel names, e.g. "chunk_h".
constexpr const char* stage_name(sluice_stage stage) noexcept {
  constexpr const char* kNames[] = {"chunk_cumsum", "scaled_dot_kkt", "solve_tril", "wy_fast",
                                    "chunk_h",      "chunk_o",        "cumsum_kkt", "solve_wy"};
  return kNames[stage];
}
constexpr int kStages = SLUICE_STAGE_SOLVE_WY + 1;

/// One stage of the chunk form. Views that the stage does not name are absent; shapes are those of
/// sluice.h. Batched matrices of solve_tril are rows of B' = batch entries, T = n tokens, one chunk
/// each (all as A and A_inverse [B',n,HV',n] by strides).
struct ChunkStageProblem {
  sluice_stage stage = SLUICE_STAGE_CHUNK_CUMSUM;
  Rows rows;
  int64_t H = 0, HV = 0, K = 0, V = 0;  ///< those that the stage has; else 0
  int64_t r = 0;                        ///< HV / H
  int64_t C = 0;                        ///< tokens of a chunk: 16, 32, 64 or 128
  Tensor q{}, k{};
  /// The values that the stage reads: v (wy_fast, solve_wy, and any with LINEAR_ATTENTION), u
  /// (chunk_h), v_new (chunk_o).
  Tensor values{};
  Tensor gate{}, beta{};  ///< [B,T,HV]; gate is absent where g_cumsum is an input
  /// And the next three, of chunk_cumsum: as in DeltaRuleProblem.
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  double gate_lower_bound = 0;
  Tensor A_log{}, dt_bias{};
  Tensor g_cumsum{};       ///< out (chunk_cumsum, cumsum_kkt), else in
  bool key_gates = false;  ///< gate and g_cumsum are [B,T,HV,K], inner stride 1
  Tensor A{};              ///< out (scaled_dot_kkt, cumsum_kkt), in (solve_tril, solve_wy)
  Tensor A_inverse{};      ///< out (solve_tril; solve_wy, optional), in (wy_fast)
  Tensor w{};              ///< out (wy_fast, solve_wy), in (chunk_h; absent: LINEAR_ATTENTION)
  Tensor u{};              ///< out (wy_fast, solve_wy)
  Tensor v_new{};          ///< out (chunk_h)
  Tensor h{};              ///< out (chunk_h), in (chunk_o; absent: states from `state`)
  Tensor o{};
  sluice_state_io state{};  ///< write_slots = read_slots where the caller gave none
  double scale = 0;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;
  sluice_triangle triangle = SLUICE_TRIANGLE_LOWER;

  /// The gates as those of a chunk_forward: gate and what makes logarithms of it, no more.
  DeltaRuleProblem gates() const noexcept;

  /// Key head that value head h reads.
  int64_t key_head(int64_t head) const noexcept {
    return head_map == SLUICE_HEAD_MAP_BLOCK ? head / r : head % H;
  }
};

inline DeltaRuleProblem ChunkStageProblem::gates() const noexcept {
  DeltaRuleProblem p;
  p.HV = HV, p.K = K, p.r = 1;
  p.gate_space = gate_space, p.gate_lower_bound = gate_lower_bound;
  p.A_log = A_log, p.dt_bias = dt_bias;
  (key_gates ? p.key_gate : p.gate) = gate;
  if (!key_gates && present(gate)) p.gate.rank = 4, p.gate.shape[3] = 1, p.gate.stride[3] = 0;
  return p;
}

/// Short causal convolution over D = G * C channels; channel d = (d / C, d % C). x and out are rank
/// 4 [B,T,G,C], weight [D,W], bias [D], states [slots,D,L].
struct CausalConvProblem {
  Rows rows;
  int64_t G = 0, C = 0, W = 0;
  int64_t L = 0;  ///< columns of the state, 0 without one
  Tensor x{}, weight{}, bias{}, out{};
  sluice_conv_state_io state{};  ///< write_slots = read_slots where the caller gave none
  sluice_activation activation = SLUICE_ACTIVATION_NONE;
};

/// Gated RMSNorm over rows of V; x, z and out are rank 5 [.., .., .., .., V].
struct GatedNormProblem {
  int64_t V = 0;
  Tensor x{}, z{}, weight{}, out{};
  double eps = 0;
  sluice_activation activation = SLUICE_ACTIVATION_SILU;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
};

/// causal_conv1d_backward. Views of rows are rank 4 as x is; states and their gradients [N,D,L].
struct CausalConvBackwardProblem {
  /// The forward call without its outputs: of state only `initial` is there, L is that of any state.
  CausalConvProblem forward;
  Tensor d_out{}, d_final{};
  Tensor dx{}, dweight{}, dbias{}, dinitial{};
};

/// gated_rms_norm_backward; out is absent in the forward call. Rows are rank 5.
struct GatedNormBackwardProblem {
  GatedNormProblem forward;
  Tensor d_out{};
  Tensor dx{}, dz{}, dweight{};
};

/// The layer as its parts. A backend supplies memory for the convolved q, k, v and, where core_out
/// is absent, for the core output; it may also fuse the parts as it likes.
///
/// conv[0], conv[1], conv[2] are the q, k and v channels: x, weights, bias and states are their
/// slices or own (q and k [B,T,H,K], v [B,T,HV/r,r*V]), of one dtype each, and present in all or
/// none; their `out` is absent and left to the backend.
/// delta has gates RAW or RAW_BOUNDED, scalar or key-wise, beta logits, l2 norm; q, k, v are absent
/// and `o` is core_out or absent.
/// With a replay ring its num_accepted is absent, and that of conv is convolution states' alone.
/// norm has z as [B,T,HV/r,r,V], out likewise, x absent unless core_out is given.
struct LayerProblem {
  sluice_op op = SLUICE_OP_LAYER_PREFILL;  ///< LAYER_PREFILL or LAYER_DECODE
  CausalConvProblem conv[3];
  bool separate = false;  ///< weights, biases and states are not slices of one tensor each
  DeltaRuleProblem delta;
  GatedNormProblem norm;
};

/// layer_backward as its parts, whose forward calls are a LayerProblem's: conv[i].forward has no
/// out, delta.forward no q, k and v, and norm.forward no x unless core_out is given, which
/// delta.forward.o is too. What goes between the parts is absent and left to the backend: d_out of
/// the convolutions, d_o, dq, dk and dv of the delta rule, dx of the norm.
struct LayerBackwardProblem {
  CausalConvBackwardProblem conv[3];
  bool separate = false;  ///< as in LayerProblem
  ChunkBackwardProblem delta;
  GatedNormBackwardProblem norm;
};

}  // namespace sluice::core

#endif  // SLUICE_CORE_PROBLEM_HPP_
