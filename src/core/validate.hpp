// Declares validation: from an operator's arguments to its problem. The only place that checks
// arguments.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_VALIDATE_HPP_
#define SLUICE_CORE_VALIDATE_HPP_

#include "core/operators.hpp"
#include "core/view_rules.hpp"

namespace sluice::core {

/// What a validator may look at: sizes and strides only; host data (offsets, slots, with
/// SLUICE_DEBUG=1 gates) as well; or offsets and slots, which were brought to the host, alone.
enum class Depth { kShapes, kContents, kIndices };

/// Everything that dispatch needs besides the problem, which validate() fills: a new one. PERF
/// problems are ten kilobytes, not cleared twice.
struct Validated {
  Status status;
  sluice_device device{0, 0};
  int32_t implementation = SLUICE_IMPL_AUTO;
};

/// The rules of an operator's arguments, and the problem that they make. `problem` knows its op.
void check(Checker& c, const sluice_chunk_forward_args& args, Depth depth,
           DeltaRuleProblem* problem) noexcept;
void check(Checker& c, const sluice_recurrent_step_args& args, Depth depth,
           DeltaRuleProblem* problem) noexcept;
void check(Checker& c, const sluice_chunk_backward_args& args, Depth depth,
           ChunkBackwardProblem* problem) noexcept;
void check(Checker& c, const sluice_chunk_summary_args& args, Depth depth,
           ChunkSummaryProblem* problem) noexcept;
void check(Checker& c, const sluice_state_fold_args& args, Depth depth,
           StateFoldProblem* problem) noexcept;
void check(Checker& c, const sluice_chunk_stage_args& args, Depth depth,
           ChunkStageProblem* problem) noexcept;
void check(Checker& c, const sluice_causal_conv1d_args& args, Depth depth,
           CausalConvProblem* problem) noexcept;
void check(Checker& c, const sluice_gated_rms_norm_args& args, Depth depth,
           GatedNormProblem* problem) noexcept;
void check(Checker& c, const sluice_causal_conv1d_backward_args& args, Depth depth,
           CausalConvBackwardProblem* problem) noexcept;
void check(Checker& c, const sluice_gated_rms_norm_backward_args& args, Depth depth,
           GatedNormBackwardProblem* problem) noexcept;
void check(Checker& c, const sluice_layer_args& args, Depth depth, LayerProblem* problem) noexcept;
void check(Checker& c, const sluice_layer_backward_args& args, Depth depth,
           LayerBackwardProblem* problem) noexcept;

template <class Args, class Problem>
Validated validate(sluice_op op, const Args& args, Depth depth, Problem* problem) noexcept {
  Checker c(kOperatorNames[op]);
  if constexpr (requires { problem->op; }) problem->op = op;
  check(c, args, depth, problem);
  c.choice("implementation", args.implementation, 5, "0 to 4 (sluice_implementation)");
  Validated validated{{}, c.device(), args.implementation};
  if (!c.ok()) validated.status = c.status();  // PERF a message is 256 bytes
  return validated;
}

// Rules that several operators share (validate_parts.cc).
// ------------------------------------------

/// Most tokens of one sequence in a step operator.
constexpr int64_t kMaxStepTokens = 16;
/// Checkpoint distances are multiples of this; every backend's chunk divides it.
constexpr int64_t kCheckpointMultiple = 64;

/// Fills rows from the [B,T,..] sizes of `t` and cu_seqlens. max_tokens: of packed rows; a bound in
/// steps, else a hint (0: none).
void check_rows(Checker& c, const char* name, const Tensor& t, const Tensor& cu_seqlens, bool step,
                int64_t max_tokens, Rows* rows) noexcept;
/// What makes logarithms of gates: sluice_delta_options and the tensors of raw gates.
struct GateSpace {
  int32_t space;
  double lower_bound;
  const Tensor &A_log, &dt_bias;
};
/// The parameters of gates of HV value heads in a space that exists: present where they are needed,
/// absent where they mean nothing. channels: of key-wise gates, else 0.
void check_gate_space(Checker& c, const GateSpace& gates, int64_t HV, int64_t channels) noexcept;
/// Refuses what int64 arithmetic of sizes could not hold in any backend: problem.hpp, kMostWork.
void check_work(Checker& c, const Rows& rows, int64_t heads, int64_t widest) noexcept;
/// One pool [slots,HV,K,V] / [slots,HV,V,K] with contiguous inner block. min_slots: least slots.
void check_pool(Checker& c, const char* name, const Tensor& pool, const DeltaRuleProblem& p,
                int64_t min_slots) noexcept;
/// A pool whose slots are the sequences.
void check_sequence_states(Checker& c, const char* name, const Tensor& t,
                           const DeltaRuleProblem& p) noexcept;
/// A state of the convolution of each sequence [N,D,L], or its gradient; all of a call have L
/// columns. p has rows, G, C, W; L becomes what the first one has.
void check_sequence_columns(Checker& c, const char* name, const Tensor& t,
                            CausalConvProblem* p) noexcept;
/// An optional view that is shaped as the view `like`; returns whether it is there and usable.
bool check_like(Checker& c, const char* name, const Tensor& t, const char* like_name,
                const Tensor& like) noexcept;
/// The same, and writable: a gradient. in_rows: its inner stride is 1.
void check_gradient(Checker& c, const char* name, const Tensor& t, const char* like_name,
                    const Tensor& like, bool in_rows = false) noexcept;
/// Slots: each contiguous, and none in another.
void check_slot_memory(Checker& c, const char* name, const Tensor& t) noexcept;
/// initial and final may be one memory only if they are one view.
void check_alias(Checker& c, const char* initial_name, const Tensor& initial,
                 const char* final_name, const Tensor& final) noexcept;
/// Weights and bias of the convolution of D channels that `what` names.
void check_conv_weights(Checker& c, const char* name, const Tensor& weight, const char* bias_name,
                        const Tensor& bias, int64_t D, const char* what) noexcept;
/// What a gated norm does to its gates.
void check_gate_activation(Checker& c, const char* name, int32_t value) noexcept;
/// The factor of outputs: the caller's, or K^-0.5.
double check_scale(Checker& c, int32_t mode, double scale, int64_t K) noexcept;
/// HV value heads, axis 2 of the view `name`, over H key heads: how many each has.
int64_t check_grouped(Checker& c, const char* name, int64_t HV, int64_t H) noexcept;
/// Half of the maps of pieces (validate_context.cc): float32 [rows.N,HV,K,columns], pool-like.
void check_map(Checker& c, const char* name, const Tensor& t, int64_t columns,
               const DeltaRuleProblem& p) noexcept;
/// state_io of chunk_forward and recurrent_step: shapes, slots, defaults, aliasing.
void check_state_io(Checker& c, DeltaRuleProblem* p) noexcept;
/// Members of a conv_state_io as the caller of an operator knows them.
struct ConvStateNames {
  const char *initial, *final, *num_accepted, *ring_position;
};
/// conv_state_io; p has rows, G, C, W.
void check_conv_state_io(Checker& c, const ConvStateNames& names, CausalConvProblem* p) noexcept;
/// num_accepted [N] needs read_slots [N,W].
void check_num_accepted(Checker& c, const DeltaRuleProblem& p) noexcept;
/// The replay ring of a step, or that there is none (validate_ring.cc). write_slots: the caller's.
void check_ring(Checker& c, const sluice_replay_ring& ring, const Tensor& write_slots,
                DeltaRuleProblem* p) noexcept;

/// SLUICE_DEBUG=1 adds checks that read every gate, key and write strength, compare every pair of slots, and bring offsets
/// and slots of device memory to the host.
bool debug_checks() noexcept;
/// Whether contents of a call on this device are to be checked.
constexpr bool sees_contents(Depth depth, sluice_device device) noexcept {
  return depth == Depth::kIndices ||
         (depth == Depth::kContents && device.type == SLUICE_DEVICE_CPU);
}
/// Host contents: cu_seqlens monotone and in range.
void check_row_contents(Checker& c, const Rows& rows) noexcept;
/// Host contents: every slot that is not padding lies inside `pool`.
void check_slot_contents(Checker& c, const char* name, const Tensor& slots, int64_t pad_below,
                         const Tensor& pool) noexcept;
/// No slot is written by two sequences; those whose read slot is padding write none.
void check_unique_slots(Checker& c, const Tensor& written, const Tensor& read,
                        int64_t pad_below) noexcept;
/// The same with SLUICE_DEBUG=1, of sluice_state_io and
/// sluice_conv_state_io alike.
template <class StateIo>
void check_unique_writes(Checker& c, const StateIo& state) noexcept {
  if (!c.ok() || !debug_checks() || !present(state.final) || !present(state.write_slots)) return;
  check_unique_slots(c, state.write_slots, state.read_slots, state.pad_below);
}
/// Host contents, with SLUICE_DEBUG=1: gates in the space that they are said to be in, write
/// strengths in [0, 2], keys short enough for the state not to grow (validate_values.cc).
void check_values(Checker& c, const DeltaRuleProblem& p) noexcept;
void check_delta_contents(Checker& c, const DeltaRuleProblem& p, Depth depth) noexcept;
/// Host contents: cursors of the replay ring.
void check_ring_contents(Checker& c, const DeltaRuleProblem& p) noexcept;
void check_conv_contents(Checker& c, const ConvStateNames& names,
                         const CausalConvProblem& p) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_VALIDATE_HPP_
