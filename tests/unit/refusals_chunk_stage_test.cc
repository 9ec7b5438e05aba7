// Measures that every stage refuses arguments outside its contract, by name, and writes nothing
// then. Each table row spoils one thing in a valid call and states the whole message.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "refusals_chunk_stage.hpp"

namespace sluice::check::stages {
namespace {

using Row = Refusal<Args>;

struct StageRow {
  sluice_stage stage;
  Row row;
};
void PrintTo(const StageRow& row, std::ostream* out) { *out << row.row.name; }
std::string stage_row_name(const ::testing::TestParamInfo<StageRow>& info) {
  return info.param.row.name;
}

class ChunkStageRefusals : public ::testing::TestWithParam<StageRow> {};

TEST_P(ChunkStageRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam().row, valid_scene(GetParam().stage));
}

const StageRow kRefusedAnywhere[] = {
    {kCumsum,
     {"stage", [](StageScene& s) { s.args.stage = 8; },
      "chunk_stage: stage = 8, expected 0 (CHUNK_CUMSUM), 1 (SCALED_DOT_KKT), 2 (SOLVE_TRIL), "
      "3 (WY_FAST), 4 (CHUNK_H), 5 (CHUNK_O), 6 (CUMSUM_KKT) or 7 (SOLVE_WY)"}},
    {kKkt,
     {"chunk_size", [](StageScene& s) { s.args.chunk_size = 48; },
      "scaled_dot_kkt: chunk_size = 48, expected 16, 32, 64 or 128 (0 = 64)"}},
    {kStates,
     {"rule", [](StageScene& s) { s.args.rule = 2; },
      "chunk_h: rule = 2, expected 0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)"}},
    {kWy,
     {"head_map", [](StageScene& s) { s.args.head_map = -1; },
      "wy_fast: head_map = -1, expected 0 (BLOCK) or 1 (CYCLIC)"}},
    {kCumsum,
     {"direction", [](StageScene& s) { s.args.direction = 2; },
      "chunk_cumsum: direction = 2, expected 0 (FORWARD) or 1 (REVERSE)"}},
    {kSolve,
     {"triangle", [](StageScene& s) { s.args.triangle = 2; },
      "solve_tril: triangle = 2, expected 0 (LOWER) or 1 (UPPER)"}},
    {kSolve,
     {"matrices", [](StageScene& s) { s.args.matrices = 2; },
      "solve_tril: matrices = 2, expected 0 (CHUNKS) or 1 (BATCHED)"}},
    {kOutputs,
     {"implementation", [](StageScene& s) { s.args.implementation = 5; },
      "chunk_o: implementation = 5, expected 0 to 4 (sluice_implementation)"}},
    {kOutputs,
     {"stream", [](StageScene& s) { s.stream = &s; },
      "chunk_o: stream = given, expected null (CPU views have no stream)", Seen::kByCall}},
    {kKkt,
     {"workspace", [](StageScene& s) { s.workspace.size = 100; },
      "scaled_dot_kkt: workspace.size = 100, expected >= 7680 bytes (sluice_workspace_size tells)",
      Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL}},
    {kKkt,
     {"offsets", [](StageScene& s) { pack(s, {0, 7, 6}); },
      "scaled_dot_kkt: cu_seqlens[2] = 6, expected >= 7 (ascending from 0, at most T = 19)",
      Seen::kByCall}},
    {kKkt,
     {"packed_batch", [](StageScene& s) { s.args.cu_seqlens = s.memory->indices({0, 7}); },
      "scaled_dot_kkt: k.shape[0] = 2, expected 1 (packed rows have one batch entry)"}},
};
INSTANTIATE_TEST_SUITE_P(Anywhere, ChunkStageRefusals, ::testing::ValuesIn(kRefusedAnywhere),
                         stage_row_name);

const StageRow kRefusedMatrices[] = {
    {kCumsum,
     {"cumsum_gate_absent", [](StageScene& s) { s.args.gate = {}; },
      "chunk_cumsum: gate = absent, expected a view of rank 3 (required)"}},
    {kCumsum,
     {"cumsum_output_absent", [](StageScene& s) { s.args.g_cumsum = {}; },
      "chunk_cumsum: g_cumsum = absent, expected a view of rank 3 (required)"}},
    {kCumsum,
     {"cumsum_shape", [](StageScene& s) { s.args.g_cumsum.shape[1] = 18; },
      "chunk_cumsum: g_cumsum.shape[1] = 18, expected 19 (tokens T)"}},
    {kCumsum,
     {"cumsum_dtype", [](StageScene& s) { s.args.g_cumsum.dtype = kBFloat16; },
      "chunk_cumsum: g_cumsum dtype = bfloat16, expected float32 (sums lose too much in "
      "16 bits)"}},
    {kCumsum,
     {"cumsum_in_place", [](StageScene& s) { s.args.gate.data = s.args.g_cumsum.data; },
      "chunk_cumsum: g_cumsum.data = gate.data, expected other memory (this operator cannot work "
      "in place)"}},
    {kKkt,
     {"kkt_k_absent", [](StageScene& s) { s.args.k = {}; },
      "scaled_dot_kkt: k = absent, expected a view of rank 4 (required)"}},
    {kKkt,
     {"kkt_k_stride", [](StageScene& s) { s.args.k.stride[3] = 2; },
      "scaled_dot_kkt: k.stride[3] = 2, expected 1 (contiguous last dimension)"}},
    {kKkt,
     {"kkt_A_absent", [](StageScene& s) { s.args.A = {}; },
      "scaled_dot_kkt: A = absent, expected a view of rank 4 (required)"}},
    {kKkt,
     {"kkt_A_columns", [](StageScene& s) { s.args.chunk_size = 0; },
      "scaled_dot_kkt: A.shape[3] = 16, expected 64 (tokens of a chunk)"}},
    {kKkt,
     {"kkt_heads", [](StageScene& s) { s.args.k = s.memory->tensor(kFloat32, {kB, kT, 3, kK}); },
      "scaled_dot_kkt: A.shape[2] = 2, expected a multiple of H = 3 (grouped value heads)"}},
    {kKkt,
     {"kkt_beta", [](StageScene& s) { s.args.beta.shape[2] = 1; },
      "scaled_dot_kkt: beta.shape[2] = 1, expected 2 (value heads HV)"}},
    {kKkt,
     {"kkt_sums_dtype", [](StageScene& s) { s.args.g_cumsum.dtype = kFloat16; },
      "scaled_dot_kkt: g_cumsum dtype = float16, expected float32 (sums lose too much "
      "in 16 bits)"}},
    {kKkt,
     {"kkt_gate",
      [](StageScene& s) {
        s.args.g_cumsum = {};
        s.args.gate.shape[1] = 3;
      },
      "scaled_dot_kkt: gate.shape[1] = 3, expected 19 (tokens T)"}},
    {kKkt,
     {"kkt_shared_output", [](StageScene& s) { s.args.A.stride[1] = 1; },
      "scaled_dot_kkt: A.stride[3] = 1, expected >= 19 (elements of an output may not share "
      "memory)"}},
    {kSolve,
     {"solve_output_absent", [](StageScene& s) { s.args.A_inverse = {}; },
      "solve_tril: A_inverse = absent, expected a view of rank 4 (required)"}},
    {kSolve,
     {"solve_in_place", [](StageScene& s) { s.args.A_inverse = s.args.A; },
      "solve_tril: A_inverse.data = A.data, expected other memory (this operator cannot work in "
      "place)"}},
    {kSolve,
     {"solve_size", [](StageScene& s) { batch(s, 24); },
      "solve_tril: A.shape[2] = 24, expected 16, 32, 64 or 128"}},
    {kSolve,
     {"solve_square",
      [](StageScene& s) {
        batch(s, 16);
        s.args.A_inverse.shape[1] = 8;
      },
      "solve_tril: A_inverse.shape[1] = 8, expected 16 (square matrices)"}},
    {kSolve,
     {"solve_chunk_size", [](StageScene& s) { batch(s, 32); },
      "solve_tril: chunk_size = 16, expected 0 or n = 32 of A (matrices are BATCHED)"}},
    {kSolve,
     {"solve_packed_matrices",
      [](StageScene& s) {
        batch(s, 16);
        s.args.cu_seqlens = s.memory->indices({0, 7});
      },
      "solve_tril: cu_seqlens = given, expected absent (matrices are BATCHED)"}},
    {kSolve,
     {"solve_rank",
      [](StageScene& s) {
        s.args.matrices = SLUICE_MATRICES_BATCHED;
        s.args.A.rank = 5;
      },
      "solve_tril: A rank = 5, expected 4"}},
};
INSTANTIATE_TEST_SUITE_P(Matrices, ChunkStageRefusals, ::testing::ValuesIn(kRefusedMatrices),
                         stage_row_name);

const StageRow kRefusedValues[] = {
    {kWy,
     {"wy_v_dtype", [](StageScene& s) { s.args.v.dtype = kBFloat16; },
      "wy_fast: v dtype = bfloat16, expected float32 (that of k)"}},
    {kWy,
     {"wy_v_tokens", [](StageScene& s) { s.args.v.shape[1] = 4; },
      "wy_fast: v.shape[1] = 4, expected 19 (T of k)"}},
    {kWy,
     {"wy_inverse", [](StageScene& s) { s.args.A_inverse = {}; },
      "wy_fast: A_inverse = absent, expected a view of rank 4 (required)"}},
    {kWy,
     {"wy_u", [](StageScene& s) { s.args.u.shape[3] = 4; },
      "wy_fast: u.shape[3] = 4, expected 5 (head dimension V)"}},
    {kWy,
     {"wy_w", [](StageScene& s) { s.args.w.shape[3] = 4; },
      "wy_fast: w.shape[3] = 4, expected 3 (head dimension K)"}},
    {kWy,
     {"wy_one_output", [](StageScene& s) { s.args.w.data = s.args.u.data; },
      "wy_fast: w.data = u.data, expected other memory (this operator cannot work in place)"}},
    {kStates,
     {"h_u_absent", [](StageScene& s) { s.args.u = {}; },
      "chunk_h: u = absent, expected a view of rank 4 (required)"}},
    {kStates,
     {"h_w_absent", [](StageScene& s) { s.args.w = {}; },
      "chunk_h: w = absent, expected a view of rank 4 (required)"}},
    {kStates,
     {"h_v_absent",
      [](StageScene& s) {
        s.args.rule = SLUICE_RULE_LINEAR_ATTENTION;
        s.args.v = {};
      },
      "chunk_h: v = absent, expected a view of rank 4 (required)"}},
    {kStates,
     {"h_v_new_in_place", [](StageScene& s) { s.args.v_new = s.args.u; },
      "chunk_h: v_new.data = u.data, expected other memory (this operator cannot work in place)"}},
    {kStates,
     {"h_rank", [](StageScene& s) { s.args.h.rank = 4; }, "chunk_h: h rank = 4, expected 5"}},
    {kStates,
     {"h_room", [](StageScene& s) { s.args.h.shape[1] = 1; },
      "chunk_h: h.shape[1] = 1, expected >= 2 (chunks of a sequence)"}},
    {kStates,
     {"h_packed_room",
      [](StageScene& s) {
        pack(s, {0, 1, 18, 19});
        s.args.state = {};
      },
      "chunk_h: h.shape[1] = 2, expected >= 4 (chunks of all sequences)", Seen::kByCall}},
    {kStates,
     {"h_layout", [](StageScene& s) { s.args.h.shape[3] = 5; },
      "chunk_h: h.shape[3] = 5, expected 3 (K, layout KV)"}},
    {kStates,
     {"h_pieces", [](StageScene& s) { s.args.h.stride[3] = 6; },
      "chunk_h: h.stride[3] = 6, expected 5 (matrices in one piece)"}},
    {kStates,
     {"h_state_shape", [](StageScene& s) { s.args.state.final.shape[0] = 1; },
      "chunk_h: state.final.shape[0] = 1, expected >= 2 (slots for N sequences without slot "
      "indices)"}},
    {kStates,
     {"h_state_slots", [](StageScene& s) { s.args.state.read_slots = s.memory->indices({0, 2}); },
      "chunk_h: state.read_slots[1,0] = 2, expected < 2 (slots of the pool)", Seen::kByCall}},
    {kOutputs,
     {"o_q", [](StageScene& s) { s.args.q.shape[3] = 2; },
      "chunk_o: q.shape[3] = 2, expected 3 (shape of k)"}},
    {kOutputs,
     {"o_q_dtype", [](StageScene& s) { s.args.q.dtype = kFloat16; },
      "chunk_o: q dtype = float16, expected float32 (that of k)"}},
    {kOutputs,
     {"o_v_new_absent", [](StageScene& s) { s.args.v_new = {}; },
      "chunk_o: v_new = absent, expected a view of rank 4 (required)"}},
    {kOutputs,
     {"o_absent", [](StageScene& s) { s.args.o = {}; },
      "chunk_o: o = absent, expected a view of rank 4 (required)"}},
    {kOutputs,
     {"o_scale",
      [](StageScene& s) {
        s.args.scale_mode = SLUICE_SCALE_VALUE;
        s.args.scale = INFINITY;
      },
      "chunk_o: scale = inf, expected a finite number"}},
    {kOutputs,
     {"o_scale_mode", [](StageScene& s) { s.args.scale_mode = 2; },
      "chunk_o: scale_mode = 2, expected 0 (DEFAULT) or 1 (VALUE)"}},
    {kOutputs,
     {"o_in_place", [](StageScene& s) { s.args.o = s.args.v_new; },
      "chunk_o: o.data = v_new.data, expected other memory (this operator cannot work in place)"}},
    {kOutputs,
     {"o_state_without_h",
      [](StageScene& s) {
        s.args.h = {};
        s.args.state.layout = 3;
      },
      "chunk_o: state.layout = 3, expected 0 (KV) or 1 (VK)"}},
};
void give_key_gates(StageScene& s) {
  s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK});
  s.args.g_cumsum = {};
}
void give_gates_of_values(StageScene& s) {
  s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.g_cumsum = {};
}
#define SLUICE_OTHER_CHANNELS ": gate.shape[3] = 5, expected 3 (head dimension K: key-wise gates)"

const StageRow kRefusedKeyGates[] = {
    {kCumsum,
     {"cumsum_gate_space", [](StageScene& s) { s.args.gate_space = 4; },
      "chunk_cumsum: gate_space = 4, expected 0 (LOG), 1 (LINEAR), 2 (RAW) or 3 (RAW_BOUNDED)"}},
    {kCumsum,
     {"cumsum_raw_alone", [](StageScene& s) { s.args.gate_space = SLUICE_GATE_RAW; },
      "chunk_cumsum: A_log = absent, expected a view of rank 1 (required)"}},
    {kCumsum,
     {"cumsum_bound", [](StageScene& s) { s.args.gate_space = SLUICE_GATE_RAW_BOUNDED; },
      "chunk_cumsum: gate_lower_bound = 0, expected a finite number < 0 (gate_space "
      "RAW_BOUNDED)"}},
    {kCumsum,
     {"cumsum_bias_in_place",
      [](StageScene& s) {
        s.args.gate_space = SLUICE_GATE_RAW_BOUNDED, s.args.gate_lower_bound = -5;
        s.args.dt_bias = s.memory->tensor(kFloat32, {kHV});
        s.args.dt_bias.data = s.args.g_cumsum.data;
      },
      "chunk_cumsum: g_cumsum.data = dt_bias.data, expected other memory (this operator cannot "
      "work in place)"}},
    {kCumsumKkt,
     {"pair_of_raw_gates", [](StageScene& s) { s.args.gate_space = SLUICE_GATE_RAW; },
      "cumsum_kkt: gate_space = 2, expected 0 (LOG; chunk_cumsum makes sums of the others)"}},
    {kOutputs,
     {"outputs_of_linear_gates",
      [](StageScene& s) {
        s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV});
        s.args.g_cumsum = {};
        s.args.gate_space = SLUICE_GATE_LINEAR;
      },
      "chunk_o: gate_space = 1, expected 0 (LOG; chunk_cumsum makes sums of the others)"}},
    {kKkt, {"kkt", give_gates_of_values, "scaled_dot_kkt" SLUICE_OTHER_CHANNELS}},
    {kWy, {"wy", give_gates_of_values, "wy_fast" SLUICE_OTHER_CHANNELS}},
    {kOutputs, {"outputs", give_gates_of_values, "chunk_o" SLUICE_OTHER_CHANNELS}},
    {kCumsumKkt, {"cumsum_kkt", give_gates_of_values, "cumsum_kkt" SLUICE_OTHER_CHANNELS}},
    {kSolveWy, {"solve_wy", give_gates_of_values, "solve_wy" SLUICE_OTHER_CHANNELS}},
    {kCumsumKkt,
     {"sums_of_pair", give_key_gates,
      "cumsum_kkt: g_cumsum = absent, expected a view of rank 4 "
      "(required)"}},
    {kWy,
     {"w_in_place_of_gates",
      [](StageScene& s) { give_key_gates(s), s.args.w.data = s.args.gate.data; },
      "wy_fast: w.data = gate.data, expected other memory (this operator cannot work in place)"}},
    {kKkt,
     {"A_in_place_of_sums", [](StageScene& s) { s.args.A.data = s.args.g_cumsum.data; },
      "scaled_dot_kkt: A.data = g_cumsum.data, expected other memory (this operator cannot work "
      "in place)"}},
    {kCumsum,
     {"sums_of_heads",
      [](StageScene& s) { s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK}); },
      "chunk_cumsum: g_cumsum rank = 3, expected 4"}},
    {kCumsum,
     {"sums_of_other_channels",
      [](StageScene& s) {
        s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK});
        s.args.g_cumsum = s.memory->tensor(kFloat32, {kB, kT, kHV, kK + 1});
      },
      "chunk_cumsum: g_cumsum.shape[3] = 4, expected 3 (K of gate)"}},
    {kStates, {"channels_of_gates", give_gates_of_values, "chunk_h" SLUICE_OTHER_CHANNELS}},
    {kStates,
     {"channels_of_sums",
      [](StageScene& s) { s.args.g_cumsum = s.memory->tensor(kBFloat16, {kB, kT, kHV, kK}); },
      "chunk_h: g_cumsum dtype = bfloat16, expected float32 (sums lose too much in 16 "
      "bits)"}},
    {kStates,
     {"channel_stride",
      [](StageScene& s) {
        s.args.g_cumsum = s.memory->tensor(kFloat32, {kB, kT, kHV, kK});
        s.args.g_cumsum.stride[3] = 2;
      },
      "chunk_h: g_cumsum.stride[3] = 2, expected 1 (contiguous last dimension)"}},
};
#undef SLUICE_KEY_GATES
INSTANTIATE_TEST_SUITE_P(KeyGates, ChunkStageRefusals, ::testing::ValuesIn(kRefusedKeyGates),
                         stage_row_name);

const StageRow kRefusedPairs[] = {
    {kCumsumKkt,
     {"pair_k_absent", [](StageScene& s) { s.args.k = {}; },
      "cumsum_kkt: k = absent, expected a view of rank 4 (required)"}},
    {kCumsumKkt,
     {"pair_gate_absent", [](StageScene& s) { s.args.gate = {}; },
      "cumsum_kkt: gate = absent, expected a view of rank 3 (required)"}},
    {kCumsumKkt,
     {"pair_sums_absent", [](StageScene& s) { s.args.g_cumsum = {}; },
      "cumsum_kkt: g_cumsum = absent, expected a view of rank 3 (required)"}},
    {kCumsumKkt,
     {"pair_sums_dtype", [](StageScene& s) { s.args.g_cumsum.dtype = kBFloat16; },
      "cumsum_kkt: g_cumsum dtype = bfloat16, expected float32 (sums lose too much in "
      "16 bits)"}},
    {kCumsumKkt,
     {"pair_gate_tokens", [](StageScene& s) { s.args.gate.shape[1] = 3; },
      "cumsum_kkt: gate.shape[1] = 3, expected 19 (tokens T)"}},
    {kCumsumKkt,
     {"pair_sums_in_place", [](StageScene& s) { s.args.gate.data = s.args.g_cumsum.data; },
      "cumsum_kkt: g_cumsum.data = gate.data, expected other memory (this operator cannot work "
      "in place)"}},
    {kCumsumKkt,
     {"pair_sums_over_beta", [](StageScene& s) { s.args.beta.data = s.args.g_cumsum.data; },
      "cumsum_kkt: g_cumsum.data = beta.data, expected other memory (this operator cannot work "
      "in place)"}},
    {kCumsumKkt,
     {"pair_A_over_gate", [](StageScene& s) { s.args.gate.data = s.args.A.data; },
      "cumsum_kkt: A.data = gate.data, expected other memory (this operator cannot work in "
      "place)"}},
    {kSolveWy,
     {"pair_A_absent", [](StageScene& s) { s.args.A = {}; },
      "solve_wy: A = absent, expected a view of rank 4 (required)"}},
    {kSolveWy,
     {"pair_A_columns", [](StageScene& s) { s.args.A.shape[3] = 8; },
      "solve_wy: A.shape[3] = 8, expected 16 (tokens of a chunk)"}},
    {kSolveWy,
     {"pair_v_dtype", [](StageScene& s) { s.args.v.dtype = kBFloat16; },
      "solve_wy: v dtype = bfloat16, expected float32 (that of k)"}},
    {kSolveWy,
     {"pair_u_absent", [](StageScene& s) { s.args.u = {}; },
      "solve_wy: u = absent, expected a view of rank 4 (required)"}},
    {kSolveWy,
     {"pair_inverse_columns", [](StageScene& s) { s.args.A_inverse.shape[3] = 8; },
      "solve_wy: A_inverse.shape[3] = 8, expected 16 (tokens of a chunk)"}},
    {kSolveWy,
     {"pair_inverse_in_place", [](StageScene& s) { s.args.A_inverse = s.args.A; },
      "solve_wy: A_inverse.data = A.data, expected other memory (this operator cannot work in "
      "place)"}},
    {kSolveWy,
     {"pair_one_output", [](StageScene& s) { s.args.w.data = s.args.A.data; },
      "solve_wy: w.data = A.data, expected other memory (this operator cannot work in place)"}},
};
INSTANTIATE_TEST_SUITE_P(Pairs, ChunkStageRefusals, ::testing::ValuesIn(kRefusedPairs),
                         stage_row_name);

INSTANTIATE_TEST_SUITE_P(Values, ChunkStageRefusals, ::testing::ValuesIn(kRefusedValues),
                         stage_row_name);

}  // namespace
}  // namespace sluice::check::stages
