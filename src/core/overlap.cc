// Compares the address ranges of what a call writes with those of its other views.
// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.hpp"

#include <cstddef>

#include "core/view_regions.hpp"

namespace sluice::core {
namespace {

constexpr Field kStatesWritten[] = {
    {"state.final", offsetof(sluice_state_io, final), Kind::kStates}};
constexpr Field kStatesRead[] = {
    {"state.initial", offsetof(sluice_state_io, initial), Kind::kStates},
    {"state.read_slots", offsetof(sluice_state_io, read_slots)},
    {"state.write_slots", offsetof(sluice_state_io, write_slots)},
    {"state.has_initial_state", offsetof(sluice_state_io, has_initial_state)}};
constexpr Field kRingWritten[] = {
    {"ring.k", offsetof(sluice_replay_ring, k)},
    {"ring.delta", offsetof(sluice_replay_ring, delta)},
    {"ring.decay", offsetof(sluice_replay_ring, decay)},
    {"ring.next_checkpoint", offsetof(sluice_replay_ring, next_checkpoint)}};
constexpr Field kRingRead[] = {{"ring.position", offsetof(sluice_replay_ring, position)},
                               {"ring.checkpoint", offsetof(sluice_replay_ring, checkpoint)}};

}  // namespace

Status check_memory(const char* op, const DeltaRuleProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = DeltaRuleProblem;
  static constexpr Field kWritten[] = {{"o", offsetof(P, o)},
                                       {"checkpoints", offsetof(P, checkpoints), Kind::kStates}};
  static constexpr Field kRead[] = {{"checkpoint_slots", offsetof(P, checkpoint_slots)},
                                    {"num_accepted", offsetof(P, num_accepted)}};
  const bool ring = present(p.ring.k);
  return check_views(op, workspace, 0, written(p, kWritten), written(p.state, kStatesWritten),
                     written(p.ring, kRingWritten, ring), read(p, kDeltaRuleRead), read(p, kRead),
                     read(p.state, kStatesRead), read(p.ring, kRingRead, ring));
}

Status check_memory(const char* op, const ChunkSummaryProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = ChunkSummaryProblem;
  static constexpr Field kWritten[] = {{"transition", offsetof(P, transition)},
                                       {"addend", offsetof(P, addend)},
                                       {"forgotten", offsetof(P, forgotten)}};
  static constexpr Field kRead[] = {{"d_o", offsetof(P, d_o)}, {"wanted", offsetof(P, wanted)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p.forward, kDeltaRuleRead),
                     read(p, kRead));
}

Status check_memory(const char* op, const StateFoldProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = StateFoldProblem;
  static constexpr Field kWritten[] = {{"entering", offsetof(P, entering)},
                                       {"final", offsetof(P, final)}};
  static constexpr Field kRead[] = {{"transition", offsetof(P, transition)},
                                    {"addend", offsetof(P, addend)},
                                    {"forgotten", offsetof(P, forgotten)},
                                    {"cu_chains", offsetof(P, cu_chains)},
                                    {"route_pieces", offsetof(P, route_pieces)},
                                    {"route_states", offsetof(P, route_states)},
                                    {"initial", offsetof(P, initial)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p, kRead));
}

Status check_memory(const char* op, const CausalConvProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = CausalConvProblem;
  static constexpr Field kWritten[] = {
      {"out", offsetof(P, out)}, {"state.final", offsetof(P, state.final), Kind::kConvStates}};
  static constexpr Field kRead[] = {
      {"state.initial", offsetof(P, state.initial), Kind::kConvStates},
      {"state.read_slots", offsetof(P, state.read_slots)},
      {"state.write_slots", offsetof(P, state.write_slots)},
      {"state.has_initial_state", offsetof(P, state.has_initial_state)},
      {"state.num_accepted", offsetof(P, state.num_accepted)},
      {"state.ring_position", offsetof(P, state.ring_position)}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p, kCausalConvRead),
                     read(p, kRead));
}

Status check_memory(const char* op, const GatedNormProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = GatedNormProblem;
  static constexpr Field kWritten[] = {{"out", offsetof(P, out), Kind::kRows}};
  return check_views(op, workspace, 0, written(p, kWritten), read(p, kGatedNormRead));
}

Status check_memory(const char* op, const sluice_chunk_stage_args& args, const ChunkStageProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using P = ChunkStageProblem;
  // Which of a stage's views it writes, and what the caller calls the values that it reads.
  constexpr unsigned kSums = 1, kTakesSums = 2, kProducts = 4, kTakesProducts = 8, kInverse = 16,
                     kTakesInverse = 32, kWy = 64, kTakesW = 128, kStates = 256, kTakesStates = 512,
                     kValuesAreV = 1024, kValuesAreU = 2048, kValuesAreNew = 4096;
  static constexpr Field kWritten[] = {
      {"g_cumsum", offsetof(P, g_cumsum), Kind::kOther, kSums},
      {"A", offsetof(P, A), Kind::kOther, kProducts},
      {"A_inverse", offsetof(P, A_inverse), Kind::kOther, kInverse},
      {"u", offsetof(P, u)},
      {"w", offsetof(P, w), Kind::kOther, kWy},
      {"v_new", offsetof(P, v_new)},
      {"h", offsetof(P, h), Kind::kOther, kStates},
      {"o", offsetof(P, o)}};
  static constexpr Field kRead[] = {
      {"q", offsetof(P, q)},
      {"k", offsetof(P, k)},
      {"v", offsetof(P, values), Kind::kOther, kValuesAreV},
      {"u", offsetof(P, values), Kind::kOther, kValuesAreU},
      {"v_new", offsetof(P, values), Kind::kOther, kValuesAreNew},
      {"gate", offsetof(P, gate)},
      {"A_log", offsetof(P, A_log)},
      {"dt_bias", offsetof(P, dt_bias)},
      {"beta", offsetof(P, beta)},
      {"g_cumsum", offsetof(P, g_cumsum), Kind::kOther, kTakesSums},
      {"A", offsetof(P, A), Kind::kOther, kTakesProducts},
      {"A_inverse", offsetof(P, A_inverse), Kind::kOther, kTakesInverse},
      {"w", offsetof(P, w), Kind::kOther, kTakesW},
      {"h", offsetof(P, h), Kind::kOther, kTakesStates},
      {"cu_seqlens", offsetof(P, rows.cu_seqlens)}};
  const sluice_stage stage = p.stage;
  const bool sums = stage == SLUICE_STAGE_CHUNK_CUMSUM || stage == SLUICE_STAGE_CUMSUM_KKT;
  const bool products = stage == SLUICE_STAGE_SCALED_DOT_KKT || stage == SLUICE_STAGE_CUMSUM_KKT;
  const bool inverse = stage == SLUICE_STAGE_SOLVE_TRIL || stage == SLUICE_STAGE_SOLVE_WY;
  const bool wy = stage == SLUICE_STAGE_WY_FAST || stage == SLUICE_STAGE_SOLVE_WY;
  const bool states = stage == SLUICE_STAGE_CHUNK_H;
  const bool delta = args.rule == SLUICE_RULE_GATED_DELTA;
  return check_views(op, workspace,
                     (sums ? kSums : kTakesSums) | (products ? kProducts : kTakesProducts) |
                         (inverse ? kInverse : kTakesInverse) | (wy ? kWy : kTakesW) |
                         (states ? kStates : kTakesStates) |
                         (!delta || wy ? kValuesAreV
                          : states     ? kValuesAreU
                                       : kValuesAreNew),
                     written(p, kWritten), written(p.state, kStatesWritten), read(p, kRead),
                     read(p.state, kStatesRead));
}

Status check_memory(const char* op, const sluice_layer_args& a, const LayerProblem& p,
                    const sluice_workspace& workspace) noexcept {
  using A = sluice_layer_args;
  constexpr unsigned kUpdated = 1, kKept = 2;  // the convolution's states
  static constexpr Field kWritten[] = {
      {"out", offsetof(A, out)},
      {"core_out", offsetof(A, core_out)},
      {"conv_final", offsetof(A, conv_final), Kind::kConvStates},
      {"k_conv_final", offsetof(A, k_conv_final), Kind::kKeyConvStates},
      {"v_conv_final", offsetof(A, v_conv_final), Kind::kValueConvStates},
      {"conv_initial", offsetof(A, conv_initial), Kind::kConvStates, kUpdated},
      {"k_conv_initial", offsetof(A, k_conv_initial), Kind::kKeyConvStates, kUpdated},
      {"v_conv_initial", offsetof(A, v_conv_initial), Kind::kValueConvStates, kUpdated}};
  static constexpr Field kRead[] = {
      {"qkv", offsetof(A, qkv)},
      {"k", offsetof(A, k)},
      {"v", offsetof(A, v)},
      {"z", offsetof(A, z)},
      {"b", offsetof(A, b)},
      {"a", offsetof(A, a)},
      {"conv_weight", offsetof(A, conv_weight)},
      {"conv_bias", offsetof(A, conv_bias)},
      {"k_conv_weight", offsetof(A, k_conv_weight)},
      {"v_conv_weight", offsetof(A, v_conv_weight)},
      {"k_conv_bias", offsetof(A, k_conv_bias)},
      {"v_conv_bias", offsetof(A, v_conv_bias)},
      {"A_log", offsetof(A, A_log)},
      {"dt_bias", offsetof(A, dt_bias)},
      {"norm_weight", offsetof(A, norm_weight)},
      {"cu_seqlens", offsetof(A, cu_seqlens)},
      {"conv_initial", offsetof(A, conv_initial), Kind::kConvStates, kKept},
      {"k_conv_initial", offsetof(A, k_conv_initial), Kind::kKeyConvStates, kKept},
      {"v_conv_initial", offsetof(A, v_conv_initial), Kind::kValueConvStates, kKept},
      {"ring_position", offsetof(A, ring_position)},
      {"num_accepted", offsetof(A, num_accepted)}};
  const bool updated = present(p.conv[0].state.final) && !present(a.conv_final);
  const bool ring = present(a.ring.k);
  return check_views(op, workspace, updated ? kUpdated : kKept, written(a, kWritten),
                     written(p.delta.state, kStatesWritten), written(a.ring, kRingWritten, ring),
                     read(a, kRead), read(p.delta.state, kStatesRead),
                     read(a.ring, kRingRead, ring));
}

}  // namespace sluice::core
