// Measures that chunk_forward refuses views, shapes and options outside its contract, by name, and
// writes nothing then. Each table row spoils one thing in a valid call and states the whole
// message.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "refusals_chunk_forward.hpp"

namespace sluice::check {
namespace {

class ChunkForwardRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(ChunkForwardRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kViewRows[] = {
    {"absent", [](ChunkScene& s) { s.args.q = {}; },
     "chunk_forward: q = absent, expected a view of rank 4 (required)"},
    {"absent_output", [](ChunkScene& s) { s.args.o = {}; },
     "chunk_forward: o = absent, expected a view of rank 4 (required)"},
    {"null_data", [](ChunkScene& s) { s.args.v.data = nullptr; },
     "chunk_forward: v.data = null, expected memory for 120 elements (required)"},
    {"rank", [](ChunkScene& s) { s.args.k.rank = 3; }, "chunk_forward: k rank = 3, expected 4"},
    {"rank_past_limit", [](ChunkScene& s) { s.args.k.rank = SLUICE_MAX_RANK + 1; },
     "chunk_forward: k rank = 6, expected 4"},
    {"float_dtype", [](ChunkScene& s) { s.args.q.dtype = kFloat64; },
     "chunk_forward: q dtype = float64, expected float32, float16 or bfloat16"},
    {"index_dtype", [](ChunkScene& s) { s.args.state.read_slots.dtype = kFloat32; },
     "chunk_forward: state.read_slots dtype = float32, expected int32 or int64"},
    {"flag_dtype",
     [](ChunkScene& s) { s.args.state.has_initial_state = s.memory->tensor(kInt32, {2}); },
     "chunk_forward: state.has_initial_state dtype = int32, expected bool or uint8"},
    {"negative_size", [](ChunkScene& s) { s.args.q.shape[1] = -1; },
     "chunk_forward: q.shape[1] = -1, expected >= 0"},
    {"span_too_long", [](ChunkScene& s) { s.args.q.shape[0] = int64_t{1} << 53; },
     "chunk_forward: q.shape[0] = 9007199254740992 with stride 24, expected a view of less than "
     "2^55 elements"},
    {"too_many_elements",
     [](ChunkScene& s) {
       s.args.q.shape[0] = int64_t{1} << 53;
       s.args.q.stride[0] = 0;
     },
     "chunk_forward: q.shape[2] = 2 with stride 4, expected a view of less than 2^55 elements"},
    {"wrapping_stride",
     [](ChunkScene& s) { s.args.q.stride[1] = std::numeric_limits<int64_t>::max(); },
     "chunk_forward: q.shape[1] = 3 with stride 9223372036854775807, expected a view of less than "
     "2^55 elements"},
    {"lowest_stride",
     [](ChunkScene& s) { s.args.q.stride[1] = std::numeric_limits<int64_t>::min(); },
     "chunk_forward: q.shape[1] = 3 with stride -9223372036854775808, expected a view of less than "
     "2^55 elements"},
    {"device_type", [](ChunkScene& s) { s.args.q.device.type = 7; },
     "chunk_forward: q device type = 7, expected 1 (CPU) or 2 (CUDA)"},
    {"mixed_devices", [](ChunkScene& s) { s.args.v.device = {SLUICE_DEVICE_CUDA, 1}; },
     "chunk_forward: v device = 2:1, expected 1:0 (one device for all views)"},
    {"state_on_another_device", [](ChunkScene& s) { s.args.state.final.device.index = 1; },
     "chunk_forward: state.final device = 1:1, expected 1:0 (one device for all views)"},
    {"misaligned",
     [](ChunkScene& s) { s.args.q.data = static_cast<std::byte*>(s.args.q.data) + 2; },
     "chunk_forward: q address mod 4 = 2, expected 0 (aligned to its element type)"},
    {"misaligned_16_bit",
     [](ChunkScene& s) {
       s.args.o.dtype = kBFloat16;
       s.args.o.data = static_cast<std::byte*>(s.args.o.data) + 1;
     },
     "chunk_forward: o address mod 2 = 1, expected 0 (aligned to its element type)"},
    {"q_inner_stride", [](ChunkScene& s) { s.args.q.stride[3] = 2; },
     "chunk_forward: q.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"k_inner_stride", [](ChunkScene& s) { s.args.k.stride[3] = -1; },
     "chunk_forward: k.stride[3] = -1, expected 1 (contiguous last dimension)"},
    {"v_inner_stride", [](ChunkScene& s) { s.args.v.stride[3] = 0; },
     "chunk_forward: v.stride[3] = 0, expected 1 (contiguous last dimension)"},
    {"o_inner_stride", [](ChunkScene& s) { s.args.o.stride[3] = 2; },
     "chunk_forward: o.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"output_zero_stride", [](ChunkScene& s) { s.args.o.stride[0] = 0; },
     "chunk_forward: o.stride[0] = 0, expected >= 1 (elements of an output may not share memory)"},
    {"output_negative_stride", [](ChunkScene& s) { s.args.o.stride[1] = -20; },
     "chunk_forward: o.stride[1] = -20, expected >= 1 (elements of an output may not share "
     "memory)"},
    {"output_overlaps_itself", [](ChunkScene& s) { s.args.o.stride[1] = 19; },
     "chunk_forward: o.stride[1] = 19, expected >= 20 (elements of an output may not share "
     "memory)"},
    {"o_is_q",
     [](ChunkScene& s) {
       s.args.q = s.args.k = s.memory->tensor(kFloat32, {kB, kT, kH, kV});
       s.args.o.data = s.args.q.data;
     },
     "chunk_forward: o.data = q.data, expected other memory (this operator cannot work in place)"},
    {"o_is_k", [](ChunkScene& s) { s.args.o.data = s.args.k.data; },
     "chunk_forward: o.data = k.data, expected other memory (this operator cannot work in place)"},
    {"o_is_v", [](ChunkScene& s) { s.args.o.data = s.args.v.data; },
     "chunk_forward: o.data = v.data, expected other memory (this operator cannot work in place)"},
};
INSTANTIATE_TEST_SUITE_P(Views, ChunkForwardRefusals, ::testing::ValuesIn(kViewRows),
                         row_name<Args>);

const Row kShapeRows[] = {
    {"no_heads", [](ChunkScene& s) { s.args.q.shape[2] = 0; },
     "chunk_forward: q.shape[2] = 0, expected >= 1 (query heads H)"},
    {"no_key_dimension", [](ChunkScene& s) { s.args.q.shape[3] = 0; },
     "chunk_forward: q.shape[3] = 0, expected >= 1 (head dimension K)"},
    {"no_value_heads", [](ChunkScene& s) { s.args.v.shape[2] = 0; },
     "chunk_forward: v.shape[2] = 0, expected >= 1 (value heads HV)"},
    {"no_value_dimension", [](ChunkScene& s) { s.args.v.shape[3] = 0; },
     "chunk_forward: v.shape[3] = 0, expected >= 1 (head dimension V)"},
    {"k_shape", [](ChunkScene& s) { s.args.k.shape[3] = 3; },
     "chunk_forward: k.shape[3] = 3, expected 4 (shape of q)"},
    {"v_batch", [](ChunkScene& s) { s.args.v.shape[0] = 1; },
     "chunk_forward: v.shape[0] = 1, expected 2 (B, T of q)"},
    {"v_tokens", [](ChunkScene& s) { s.args.v.shape[1] = 2; },
     "chunk_forward: v.shape[1] = 2, expected 3 (B, T of q)"},
    {"o_shape", [](ChunkScene& s) { s.args.o.shape[2] = 2; },
     "chunk_forward: o.shape[2] = 2, expected 4 (shape of v)"},
    {"grouped_heads", [](ChunkScene& s) { s.args.v.shape[2] = s.args.o.shape[2] = 3; },
     "chunk_forward: v.shape[2] = 3, expected a multiple of H = 2 (grouped value heads)"},
    {"k_dtype", [](ChunkScene& s) { s.args.k.dtype = kBFloat16; },
     "chunk_forward: k dtype = bfloat16, expected float32 (that of q)"},
    {"v_dtype", [](ChunkScene& s) { s.args.v.dtype = kFloat16; },
     "chunk_forward: v dtype = float16, expected float32 (that of q)"},
    {"gate_shape", [](ChunkScene& s) { s.args.gate.shape[2] = 2; },
     "chunk_forward: gate.shape[2] = 2, expected 4 (B, T, HV of v)"},
    {"gate_rank", [](ChunkScene& s) { s.args.gate.rank = 2; },
     "chunk_forward: gate rank = 2, expected 3 ([B,T,HV])"},
    {"key_gate_channels",
     [](ChunkScene& s) { s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, 1}); },
     "chunk_forward: gate.shape[3] = 1, expected 4 (K of q: key-wise gates)"},
    {"key_gate_heads",
     [](ChunkScene& s) { s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kH, kK}); },
     "chunk_forward: gate.shape[2] = 2, expected 4 (B, T, HV of v)"},
    {"key_gate_stride",
     [](ChunkScene& s) {
       s.args.gate = s.memory->tensor(kFloat32, {kB, kT, kHV, kK});
       s.args.gate.stride[3] = 0;
     },
     "chunk_forward: gate.stride[3] = 0, expected 1 (contiguous last dimension)"},
    {"key_gate_bias_of_heads",
     [](ChunkScene& s) {
       make_key_gate_raw(s);
       s.args.dt_bias = s.memory->tensor(kFloat32, {kHV});
     },
     "chunk_forward: dt_bias rank = 1, expected 2"},
    {"key_gate_bias_heads",
     [](ChunkScene& s) {
       make_key_gate_raw(s);
       s.args.dt_bias.shape[0] = 2;
     },
     "chunk_forward: dt_bias.shape[0] = 2, expected 4 (HV value heads)"},
    {"key_gate_bias_channels",
     [](ChunkScene& s) {
       make_key_gate_raw(s);
       s.args.dt_bias.shape[1] = 3;
     },
     "chunk_forward: dt_bias.shape[1] = 3, expected 4 (K channels of key-wise gates)"},
    {"key_gate_bias_stride",
     [](ChunkScene& s) {
       make_key_gate_raw(s);
       s.args.dt_bias.stride[1] = 2;
     },
     "chunk_forward: dt_bias.stride[1] = 2, expected 1 (contiguous last dimension)"},
    {"key_gate_without_A_log",
     [](ChunkScene& s) {
       make_key_gate_raw(s);
       s.args.A_log = {};
     },
     "chunk_forward: A_log = absent, expected a view of rank 1 (required)"},
    {"gate_bias_of_channels",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.dt_bias = s.memory->tensor(kFloat32, {kHV, kK});
     },
     "chunk_forward: dt_bias rank = 2, expected 1"},
    {"beta_shape", [](ChunkScene& s) { s.args.beta.shape[1] = 1; },
     "chunk_forward: beta.shape[1] = 1, expected 3 (B, T, HV of v)"},
};
INSTANTIATE_TEST_SUITE_P(Shapes, ChunkForwardRefusals, ::testing::ValuesIn(kShapeRows),
                         row_name<Args>);

const Row kOptionRows[] = {
    {"gate_space", [](ChunkScene& s) { s.args.options.gate_space = 4; },
     "chunk_forward: gate_space = 4, expected 0 (LOG), 1 (LINEAR), 2 (RAW) or 3 (RAW_BOUNDED)"},
    {"beta_space", [](ChunkScene& s) { s.args.options.beta_space = -1; },
     "chunk_forward: beta_space = -1, expected 0 (VALUE) or 1 (LOGIT)"},
    {"eigenvalues", [](ChunkScene& s) { s.args.options.eigenvalues = 2; },
     "chunk_forward: eigenvalues = 2, expected 0 (POSITIVE) or 1 (NEGATIVE)"},
    {"rule", [](ChunkScene& s) { s.args.options.rule = 2; },
     "chunk_forward: rule = 2, expected 0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)"},
    {"scale_mode", [](ChunkScene& s) { s.args.options.scale_mode = 2; },
     "chunk_forward: scale_mode = 2, expected 0 (DEFAULT) or 1 (VALUE)"},
    {"qk_norm", [](ChunkScene& s) { s.args.options.qk_norm = 2; },
     "chunk_forward: qk_norm = 2, expected 0 (NONE) or 1 (L2)"},
    {"head_map", [](ChunkScene& s) { s.args.options.head_map = 2; },
     "chunk_forward: head_map = 2, expected 0 (BLOCK) or 1 (CYCLIC)"},
    {"implementation", [](ChunkScene& s) { s.args.implementation = 5; },
     "chunk_forward: implementation = 5, expected 0 to 4 (sluice_implementation)"},
    {"layout", [](ChunkScene& s) { s.args.state.layout = 2; },
     "chunk_forward: state.layout = 2, expected 0 (KV) or 1 (VK)"},
    {"reserved", [](ChunkScene& s) { s.args.state.reserved = 1; },
     "chunk_forward: reserved = 1, expected 0"},
    {"epsilon_nan",
     [](ChunkScene& s) { s.args.options.l2norm_eps = std::numeric_limits<double>::quiet_NaN(); },
     "chunk_forward: l2norm_eps = nan, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"epsilon_infinite",
     [](ChunkScene& s) { s.args.options.l2norm_eps = std::numeric_limits<double>::infinity(); },
     "chunk_forward: l2norm_eps = inf, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"epsilon_negative", [](ChunkScene& s) { s.args.options.l2norm_eps = -1e-6; },
     "chunk_forward: l2norm_eps = -1e-06, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"scale",
     [](ChunkScene& s) {
       s.args.options.scale_mode = SLUICE_SCALE_VALUE;
       s.args.options.scale = std::numeric_limits<double>::infinity();
     },
     "chunk_forward: scale = inf, expected a finite number"},
    {"linear_attention_beta",
     [](ChunkScene& s) { s.args.options.rule = SLUICE_RULE_LINEAR_ATTENTION; },
     "chunk_forward: beta = given, expected absent (rule LINEAR_ATTENTION has no delta term)"},
    {"linear_attention_eigenvalues",
     [](ChunkScene& s) {
       s.args.options.rule = SLUICE_RULE_LINEAR_ATTENTION;
       s.args.beta = {};
       s.args.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
     },
     "chunk_forward: eigenvalues = 1, expected 0 (rule LINEAR_ATTENTION has no delta term)"},
    {"raw_without_gate",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.gate = {};
     },
     "chunk_forward: gate = absent, expected a view of rank 3 or 4 (gate_space RAW)"},
    {"raw_without_A_log",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.A_log = {};
     },
     "chunk_forward: A_log = absent, expected a view of rank 1 (required)"},
    {"raw_without_dt_bias",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.dt_bias = {};
     },
     "chunk_forward: dt_bias = absent, expected a view of rank 1 (required)"},
    {"A_log_size",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.A_log.shape[0] = 2;
     },
     "chunk_forward: A_log.shape[0] = 2, expected 4 (HV value heads)"},
    {"A_log_with_log_gate",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.options.gate_space = SLUICE_GATE_LOG;
     },
     "chunk_forward: A_log = given, expected absent (only with gate_space RAW or RAW_BOUNDED)"},
    {"dt_bias_with_linear_gate",
     [](ChunkScene& s) {
       make_gate_raw(s);
       s.args.options.gate_space = SLUICE_GATE_LINEAR;
       s.args.A_log = {};
     },
     "chunk_forward: dt_bias = given, expected absent (only with gate_space RAW or RAW_BOUNDED)"},
    {"bounded_without_bound",
     [](ChunkScene& s) { s.args.options.gate_space = SLUICE_GATE_RAW_BOUNDED; },
     "chunk_forward: gate_lower_bound = 0, expected a finite number < 0 (gate_space RAW_BOUNDED)"},
    {"bounded_by_infinity",
     [](ChunkScene& s) {
       s.args.options.gate_space = SLUICE_GATE_RAW_BOUNDED;
       s.args.options.gate_lower_bound = -std::numeric_limits<double>::infinity();
     },
     "chunk_forward: gate_lower_bound = -inf, expected a finite number < 0 (gate_space "
     "RAW_BOUNDED)"},
    {"bound_of_log_gate", [](ChunkScene& s) { s.args.options.gate_lower_bound = -5; },
     "chunk_forward: gate_lower_bound = -5, expected 0 (only with gate_space RAW_BOUNDED)"},
    {"bounded_without_gate",
     [](ChunkScene& s) {
       s.args.options.gate_space = SLUICE_GATE_RAW_BOUNDED;
       s.args.options.gate_lower_bound = -5;
       s.args.gate = {};
     },
     "chunk_forward: gate = absent, expected a view of rank 3 or 4 (gate_space RAW_BOUNDED)"},
    {"logit_without_beta",
     [](ChunkScene& s) {
       s.args.options.beta_space = SLUICE_BETA_LOGIT;
       s.args.beta = {};
     },
     "chunk_forward: beta = absent, expected a view of rank 3 (beta_space LOGIT)"},
};
INSTANTIATE_TEST_SUITE_P(Options, ChunkForwardRefusals, ::testing::ValuesIn(kOptionRows),
                         row_name<Args>);

}  // namespace
}  // namespace sluice::check
