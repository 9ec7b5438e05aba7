// Measures that chunk_backward refuses views, shapes and options outside its contract, by name, and
// writes nothing then; rules that it shares with chunk_forward have one row each here.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_chunk_backward_args;
using BackwardScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr sluice_op kOp = SLUICE_OP_CHUNK_BACKWARD;
constexpr int64_t kB = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 5;

BackwardScene valid_scene() {
  BackwardScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  for (sluice_tensor* t : {&s.args.q, &s.args.k, &s.args.dq, &s.args.dk}) {
    *t = m.tensor(kFloat32, {kB, kT, kH, kK});
  }
  for (sluice_tensor* t : {&s.args.v, &s.args.d_o, &s.args.dv}) {
    *t = m.tensor(kFloat32, {kB, kT, kHV, kV});
  }
  for (sluice_tensor* t : {&s.args.gate, &s.args.beta, &s.args.dgate, &s.args.dbeta}) {
    *t = m.tensor(kFloat32, {kB, kT, kHV});
  }
  for (sluice_tensor* t : {&s.args.initial, &s.args.d_final, &s.args.dinitial}) {
    *t = m.tensor(kFloat32, {kB, kHV, kK, kV});
  }
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(8192), 8192};
  return s;
}

void make_gate_raw(BackwardScene& s) {
  s.args.options.gate_space = SLUICE_GATE_RAW;
  for (sluice_tensor* t : {&s.args.A_log, &s.args.dt_bias, &s.args.dA_log, &s.args.ddt_bias}) {
    *t = s.memory->tensor(kFloat32, {kHV});
  }
}

/// The two sequences packed, in one batch entry.
void pack(BackwardScene& s, std::initializer_list<int64_t> offsets) {
  for (sluice_tensor* t : {&s.args.q, &s.args.k, &s.args.dq, &s.args.dk, &s.args.v, &s.args.d_o,
                           &s.args.dv, &s.args.gate, &s.args.beta, &s.args.dgate, &s.args.dbeta}) {
    t->shape[0] = 1;
    t->shape[1] = kB * kT;
  }
  s.args.cu_seqlens = s.memory->indices(offsets);
}

class ChunkBackwardRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(ChunkBackwardRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kViewRows[] = {
    {"absent", [](BackwardScene& s) { s.args.q = {}; },
     "chunk_backward: q = absent, expected a view of rank 4 (required)"},
    {"d_o_absent", [](BackwardScene& s) { s.args.d_o = {}; },
     "chunk_backward: d_o = absent, expected a view of rank 4 (required)"},
    {"gradient_in_an_input",
     [](BackwardScene& s) { s.args.dv.data = static_cast<std::byte*>(s.args.beta.data) + 4; },
     "chunk_backward: dv.data = 4 bytes after beta.data"
     ", expected memory of its own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"d_o_shape", [](BackwardScene& s) { s.args.d_o.shape[2] = 2; },
     "chunk_backward: d_o.shape[2] = 2, expected 4 (shape of v)"},
    {"d_o_inner_stride", [](BackwardScene& s) { s.args.d_o.stride[3] = 2; },
     "chunk_backward: d_o.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"d_o_dtype", [](BackwardScene& s) { s.args.d_o.dtype = kFloat64; },
     "chunk_backward: d_o dtype = float64, expected float32, float16 or bfloat16"},
    {"d_o_of_whole_numbers", [](BackwardScene& s) { s.args.d_o.dtype = kInt32; },
     "chunk_backward: d_o dtype = int32, expected float32, float16 or bfloat16"},
    {"v_dtype", [](BackwardScene& s) { s.args.v.dtype = kBFloat16; },
     "chunk_backward: v dtype = bfloat16, expected float32 (that of q)"},
    {"grouped_heads", [](BackwardScene& s) { s.args.v.shape[2] = s.args.d_o.shape[2] = 3; },
     "chunk_backward: v.shape[2] = 3, expected a multiple of H = 2 (grouped value heads)"},
    {"gate_shape", [](BackwardScene& s) { s.args.gate.shape[1] = 2; },
     "chunk_backward: gate.shape[1] = 2, expected 3 (B, T, HV of v)"},
    {"key_gates_alone",
     [](BackwardScene& s) { s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK}); },
     "chunk_backward: dgate rank = 3, expected 4"},
    {"initial_shape", [](BackwardScene& s) { s.args.initial.shape[2] = 3; },
     "chunk_backward: initial.shape[2] = 3, expected 4 (K, layout KV)"},
    {"initial_sequences", [](BackwardScene& s) { s.args.initial.shape[0] = 3; },
     "chunk_backward: initial.shape[0] = 3, expected 2 (N sequences)"},
    {"d_final_layout", [](BackwardScene& s) { s.args.d_final.stride[2] = 6; },
     "chunk_backward: d_final.stride[2] = 6, expected 5 (contiguous inside a slot)"},
    {"d_final_dtype", [](BackwardScene& s) { s.args.d_final.dtype = kInt32; },
     "chunk_backward: d_final dtype = int32, expected float32, float16 or bfloat16"},
    {"dinitial_rank", [](BackwardScene& s) { s.args.dinitial.rank = 3; },
     "chunk_backward: dinitial rank = 3, expected 4"},
    {"device", [](BackwardScene& s) { s.args.dq.device = {SLUICE_DEVICE_CUDA, 0}; },
     "chunk_backward: dq device = 2:0, expected 1:0 (one device for all views)"},
};
INSTANTIATE_TEST_SUITE_P(Views, ChunkBackwardRefusals, ::testing::ValuesIn(kViewRows),
                         row_name<Args>);

const Row kGradientRows[] = {
    {"dq_shape", [](BackwardScene& s) { s.args.dq.shape[3] = 3; },
     "chunk_backward: dq.shape[3] = 3, expected 4 (shape of q)"},
    {"dq_dtype", [](BackwardScene& s) { s.args.dq.dtype = kFloat64; },
     "chunk_backward: dq dtype = float64, expected float32, float16 or bfloat16"},
    {"dk_inner_stride", [](BackwardScene& s) { s.args.dk.stride[3] = 2; },
     "chunk_backward: dk.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"dv_overlaps", [](BackwardScene& s) { s.args.dv.stride[1] = 0; },
     "chunk_backward: dv.stride[1] = 0, expected >= 1 (elements of an output may not share "
     "memory)"},
    {"dgate_shape", [](BackwardScene& s) { s.args.dgate.shape[2] = 2; },
     "chunk_backward: dgate.shape[2] = 2, expected 4 (shape of gate)"},
    {"dgate_without_gate", [](BackwardScene& s) { s.args.gate = {}; },
     "chunk_backward: dgate = given, expected absent (gate is absent)"},
    {"dbeta_without_beta", [](BackwardScene& s) { s.args.beta = {}; },
     "chunk_backward: dbeta = given, expected absent (beta is absent)"},
    {"dA_log_without_raw",
     [](BackwardScene& s) { s.args.dA_log = s.memory->tensor(kFloat32, {kHV}); },
     "chunk_backward: dA_log = given, expected absent (A_log is absent)"},
    {"ddt_bias_without_raw",
     [](BackwardScene& s) { s.args.ddt_bias = s.memory->tensor(kFloat32, {kHV}); },
     "chunk_backward: ddt_bias = given, expected absent (dt_bias is absent)"},
    {"ddt_bias_shape",
     [](BackwardScene& s) {
       make_gate_raw(s);
       s.args.ddt_bias.shape[0] = 2;
     },
     "chunk_backward: ddt_bias.shape[0] = 2, expected 4 (shape of dt_bias)"},
    {"in_place", [](BackwardScene& s) { s.args.dq.data = s.args.q.data; },
     "chunk_backward: dq.data = q.data, expected other memory (this operator cannot work in "
     "place)"},
    {"in_place_of_d_o", [](BackwardScene& s) { s.args.dv.data = s.args.d_o.data; },
     "chunk_backward: dv.data = d_o.data, expected other memory (this operator cannot work in "
     "place)"},
    {"in_place_of_d_final", [](BackwardScene& s) { s.args.dinitial.data = s.args.d_final.data; },
     "chunk_backward: dinitial.data = d_final.data, expected other memory (this operator cannot "
     "work in place)"},
    {"one_memory_twice", [](BackwardScene& s) { s.args.dk.data = s.args.dq.data; },
     "chunk_backward: dk.data = dq.data, expected other memory (this operator cannot work in "
     "place)"},
};
INSTANTIATE_TEST_SUITE_P(Gradients, ChunkBackwardRefusals, ::testing::ValuesIn(kGradientRows),
                         row_name<Args>);

const Row kOptionRows[] = {
    {"gate_space", [](BackwardScene& s) { s.args.options.gate_space = 4; },
     "chunk_backward: gate_space = 4, expected 0 (LOG), 1 (LINEAR), 2 (RAW) or 3 (RAW_BOUNDED)"},
    {"bound_of_log_gate", [](BackwardScene& s) { s.args.options.gate_lower_bound = -5; },
     "chunk_backward: gate_lower_bound = -5, expected 0 (only with gate_space RAW_BOUNDED)"},
    {"beta_space", [](BackwardScene& s) { s.args.options.beta_space = 2; },
     "chunk_backward: beta_space = 2, expected 0 (VALUE) or 1 (LOGIT)"},
    {"eigenvalues", [](BackwardScene& s) { s.args.options.eigenvalues = 2; },
     "chunk_backward: eigenvalues = 2, expected 0 (POSITIVE) or 1 (NEGATIVE)"},
    {"rule", [](BackwardScene& s) { s.args.options.rule = 2; },
     "chunk_backward: rule = 2, expected 0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)"},
    {"linear_attention_with_beta",
     [](BackwardScene& s) { s.args.options.rule = SLUICE_RULE_LINEAR_ATTENTION; },
     "chunk_backward: beta = given, expected absent (rule LINEAR_ATTENTION has no delta term)"},
    {"head_map", [](BackwardScene& s) { s.args.options.head_map = 2; },
     "chunk_backward: head_map = 2, expected 0 (BLOCK) or 1 (CYCLIC)"},
    {"qk_norm", [](BackwardScene& s) { s.args.options.qk_norm = -1; },
     "chunk_backward: qk_norm = -1, expected 0 (NONE) or 1 (L2)"},
    {"l2norm_eps", [](BackwardScene& s) { s.args.options.l2norm_eps = -1; },
     "chunk_backward: l2norm_eps = -1, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"scale",
     [](BackwardScene& s) {
       s.args.options.scale_mode = SLUICE_SCALE_VALUE;
       s.args.options.scale = HUGE_VAL;
     },
     "chunk_backward: scale = inf, expected a finite number"},
    {"state_layout", [](BackwardScene& s) { s.args.state_layout = 2; },
     "chunk_backward: state_layout = 2, expected 0 (KV) or 1 (VK)"},
    {"split", [](BackwardScene& s) { s.args.split = 5; },
     "chunk_backward: split = 5, expected 0 (AUTO), 1 (NEVER), 2 (COLUMNS), 3 (SEGMENTS) or 4 "
     "(LENGTH)"},
    {"one_segment",
     [](BackwardScene& s) { s.args.split = SLUICE_SPLIT_SEGMENTS, s.args.split_value = 1; },
     "chunk_backward: split_value = 1, expected 2 to 4096 segments (split SEGMENTS)"},
    {"part_of_a_chunk",
     [](BackwardScene& s) { s.args.split = SLUICE_SPLIT_LENGTH, s.args.split_value = 100; },
     "chunk_backward: split_value = 100, expected a multiple of 64 tokens, or 0 (split LENGTH)"},
    {"value_of_no_split", [](BackwardScene& s) { s.args.split_value = 64; },
     "chunk_backward: split_value = 64, expected 0 (only with split SEGMENTS or LENGTH)"},
    {"reserved", [](BackwardScene& s) { s.args.options.reserved = 1; },
     "chunk_backward: reserved = 1, expected 0"},
    {"implementation", [](BackwardScene& s) { s.args.implementation = 5; },
     "chunk_backward: implementation = 5, expected 0 to 4 (sluice_implementation)"},
    {"raw_without_A_log", [](BackwardScene& s) { s.args.options.gate_space = SLUICE_GATE_RAW; },
     "chunk_backward: A_log = absent, expected a view of rank 1 (required)"},
    {"offsets_descend", [](BackwardScene& s) { pack(s, {0, 4, 3}); },
     "chunk_backward: cu_seqlens[2] = 3, expected >= 4 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"workspace", [](BackwardScene& s) { s.workspace = {}; },
     "chunk_backward: workspace.size = 0, expected >= 1808 bytes (sluice_workspace_size tells)",
     Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL},
};
INSTANTIATE_TEST_SUITE_P(Options, ChunkBackwardRefusals, ::testing::ValuesIn(kOptionRows),
                         row_name<Args>);

TEST(ChunkBackwardAccepts, TheSceneThatTheRowsSpoil) {
  expect_accepted(kOp, valid_scene());
  BackwardScene raw = valid_scene();
  make_gate_raw(raw);
  expect_accepted(kOp, raw);
  raw.args.options.gate_space = SLUICE_GATE_RAW_BOUNDED;
  raw.args.options.gate_lower_bound = -5;
  expect_accepted(kOp, raw);
  raw.args.A_log = raw.args.dA_log = raw.args.dt_bias = raw.args.ddt_bias = {};
  expect_accepted(kOp, raw);
  BackwardScene packed = valid_scene();
  pack(packed, {0, 4, 6});
  expect_accepted(kOp, packed);
}

TEST(ChunkBackwardAccepts, NoOutputsAndNoOptionalInputs) {
  BackwardScene s = valid_scene();
  for (sluice_tensor* t :
       {&s.args.gate, &s.args.beta, &s.args.initial, &s.args.d_final, &s.args.dq, &s.args.dk,
        &s.args.dv, &s.args.dgate, &s.args.dbeta, &s.args.dinitial}) {
    *t = {};
  }
  expect_accepted(kOp, s);
}

}  // namespace
}  // namespace sluice::check
