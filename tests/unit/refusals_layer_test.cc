// Measures that layer_prefill and layer_decode refuse every argument outside their contract, by
// name, and write nothing then. Each table row spoils one thing in a valid call of either packing.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "core/validate.hpp"
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_layer_args;
using LayerScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr int64_t kB = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 6, kW = 4, kL = 6;
constexpr int64_t kChannels = 2 * kH * kK + kHV * kV;

/// Two sequences of three tokens, packing FLAT, both kinds of state in place in pools of 6 slots.
LayerScene valid_scene() {
  LayerScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.qkv = m.tensor(kBFloat16, {kB, kT, kChannels});
  s.args.z = m.tensor(kBFloat16, {kB, kT, kHV * kV});
  s.args.b = m.tensor(kBFloat16, {kB, kT, kHV});
  s.args.a = m.tensor(kBFloat16, {kB, kT, kHV});
  s.args.conv_weight = m.tensor(kBFloat16, {kChannels, kW});
  s.args.A_log = m.tensor(kFloat32, {kHV});
  s.args.dt_bias = m.tensor(kFloat32, {kHV});
  s.args.norm_weight = m.tensor(kFloat32, {kV});
  s.args.out = m.tensor(kBFloat16, {kB, kT, kHV, kV});
  s.args.core_out = m.tensor(kBFloat16, {kB, kT, kHV, kV});
  s.args.conv_initial = m.tensor(kBFloat16, {6, kChannels, kL});
  s.args.conv_final = s.args.conv_initial;
  s.args.state.initial = m.tensor(kFloat32, {6, kHV, kK, kV});
  s.args.state.final = s.args.state.initial;
  s.args.state.read_slots = m.indices({3, 1});
  s.args.num_k_heads = kH, s.args.num_v_heads = kHV;
  s.args.head_k_dim = kK, s.args.head_v_dim = kV;
  s.args.gate_activation = SLUICE_ACTIVATION_SILU;
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

void interleave(LayerScene& s) {
  s.args.packing = SLUICE_PACKING_INTERLEAVED;
  s.args.qkv = s.memory->tensor(kBFloat16, {kB, kT, kChannels + kHV * kV});
  s.args.b = s.memory->tensor(kBFloat16, {kB, kT, 2 * kHV});
  s.args.z = s.args.a = {};
}

void make_ring(LayerScene& s) {
  s.args.conv_state_form = SLUICE_CONV_STATE_RING;
  s.args.ring_position = s.memory->indices({9, 0});
}

void speculate(LayerScene& s) {
  s.args.num_accepted = s.memory->indices({2, 1});
  s.args.state.read_slots = s.memory->table(2, 3, {0, 1, 2, 3, 4, 5});
}

void pack(LayerScene& s, std::initializer_list<int64_t> offsets) {
  for (sluice_tensor* t :
       {&s.args.qkv, &s.args.z, &s.args.b, &s.args.a, &s.args.out, &s.args.core_out}) {
    t->shape[0] = 1;
    t->shape[1] = kB * kT;
  }
  s.args.cu_seqlens = s.memory->indices(offsets);
}

class LayerPrefillRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(LayerPrefillRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_LAYER_PREFILL, GetParam(), valid_scene());
}

const Row kOptionRows[] = {
    {"no_key_heads", [](LayerScene& s) { s.args.num_k_heads = 0; },
     "layer_prefill: num_k_heads = 0, expected 1 to 2^20"},
    {"too_many_value_heads", [](LayerScene& s) { s.args.num_v_heads = (1 << 20) + 1; },
     "layer_prefill: num_v_heads = 1048577, expected 1 to 2^20"},
    {"key_dimension", [](LayerScene& s) { s.args.head_k_dim = -1; },
     "layer_prefill: head_k_dim = -1, expected 1 to 2^20"},
    {"value_dimension", [](LayerScene& s) { s.args.head_v_dim = 0; },
     "layer_prefill: head_v_dim = 0, expected 1 to 2^20"},
    {"grouped_heads", [](LayerScene& s) { s.args.num_v_heads = 3; },
     "layer_prefill: num_v_heads = 3, expected a multiple of num_k_heads = 2 (grouped value "
     "heads)"},
    {"packing", [](LayerScene& s) { s.args.packing = 3; },
     "layer_prefill: packing = 3, expected 0 (FLAT), 1 (INTERLEAVED) or 2 (SEPARATE)"},
    {"scale_mode", [](LayerScene& s) { s.args.scale_mode = 3; },
     "layer_prefill: scale_mode = 3, expected 0 (DEFAULT) or 1 (VALUE)"},
    {"conv_state_form", [](LayerScene& s) { s.args.conv_state_form = 2; },
     "layer_prefill: conv_state_form = 2, expected 0 (SHIFT) or 1 (RING)"},
    {"eigenvalues", [](LayerScene& s) { s.args.eigenvalues = -1; },
     "layer_prefill: eigenvalues = -1, expected 0 (POSITIVE) or 1 (NEGATIVE)"},
    {"head_map", [](LayerScene& s) { s.args.head_map = 2; },
     "layer_prefill: head_map = 2, expected 0 (BLOCK) or 1 (CYCLIC)"},
    {"rounding", [](LayerScene& s) { s.args.rounding = 3; },
     "layer_prefill: rounding = 3, expected 0 (ROUND_ONCE), 1 (ROUND_HF) or 2 (ROUND_INPUT)"},
    {"state_writes", [](LayerScene& s) { s.args.state_writes = 3; },
     "layer_prefill: state_writes = 3, expected 0 (LAST), 1 (PER_TOKEN) or 2 (NONE)"},
    {"state_writes_of_decode", [](LayerScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_NONE; },
     "layer_prefill: state_writes = 2, expected 0 (LAST) in prefill"},
    {"implementation", [](LayerScene& s) { s.args.implementation = 5; },
     "layer_prefill: implementation = 5, expected 0 to 4 (sluice_implementation)"},
    {"reserved", [](LayerScene& s) { s.args.reserved = 3; },
     "layer_prefill: reserved = 3, expected 0"},
    {"l2norm_eps", [](LayerScene& s) { s.args.l2norm_eps = -2; },
     "layer_prefill: l2norm_eps = -2, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"norm_eps", [](LayerScene& s) { s.args.norm_eps = std::numeric_limits<double>::infinity(); },
     "layer_prefill: norm_eps = inf, expected a finite number >= 0 (0 = the default 1e-6)"},
    {"gate_activation", [](LayerScene& s) { s.args.gate_activation = 0; },
     "layer_prefill: gate_activation = 0, expected 1 (SILU) or 2 (SIGMOID)"},
    {"interleaved_head_map",
     [](LayerScene& s) {
       interleave(s);
       s.args.head_map = SLUICE_HEAD_MAP_CYCLIC;
     },
     "layer_prefill: head_map = 1, expected 0 (packing INTERLEAVED groups value heads by key "
     "head)"},
    {"scale",
     [](LayerScene& s) {
       s.args.scale_mode = SLUICE_SCALE_VALUE;
       s.args.scale = -std::numeric_limits<double>::infinity();
     },
     "layer_prefill: scale = -inf, expected a finite number"},
    {"num_accepted_of_decode", speculate,
     "layer_prefill: num_accepted = given, expected absent (only in layer_decode)"},
    {"stream", [](LayerScene& s) { s.stream = &s; },
     "layer_prefill: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Options, LayerPrefillRefusals, ::testing::ValuesIn(kOptionRows),
                         row_name<Args>);

const Row kTensorRows[] = {
    {"qkv_absent", [](LayerScene& s) { s.args.qkv = {}; },
     "layer_prefill: qkv = absent, expected a view of rank 3 (required)"},
    {"qkv_width", [](LayerScene& s) { s.args.qkv.shape[2] = 39; },
     "layer_prefill: qkv.shape[2] = 39, expected 40 (2 H K + HV V)"},
    {"qkv_width_interleaved",
     [](LayerScene& s) {
       interleave(s);
       s.args.qkv.shape[2] = 40;
     },
     "layer_prefill: qkv.shape[2] = 40, expected 64 (2 H K + 2 HV V, INTERLEAVED)"},
    {"qkv_stride", [](LayerScene& s) { s.args.qkv.stride[2] = 2; },
     "layer_prefill: qkv.stride[2] = 2, expected 1 (contiguous last dimension)"},
    {"z_absent", [](LayerScene& s) { s.args.z = {}; },
     "layer_prefill: z = absent, expected a view of rank 3 (required)"},
    {"z_width", [](LayerScene& s) { s.args.z.shape[2] = 6; },
     "layer_prefill: z.shape[2] = 6, expected 24 (HV V)"},
    {"z_tokens", [](LayerScene& s) { s.args.z.shape[1] = 2; },
     "layer_prefill: z.shape[1] = 2, expected 3 (T of qkv)"},
    {"z_stride", [](LayerScene& s) { s.args.z.stride[2] = -1; },
     "layer_prefill: z.stride[2] = -1, expected 1 (contiguous last dimension)"},
    {"z_interleaved",
     [](LayerScene& s) {
       interleave(s);
       s.args.z = valid_scene().args.z;
     },
     "layer_prefill: z = given, expected absent (packing INTERLEAVED has it in qkv)"},
    {"b_batch", [](LayerScene& s) { s.args.b.shape[0] = 1; },
     "layer_prefill: b.shape[0] = 1, expected 2 (B of qkv)"},
    {"b_width_interleaved",
     [](LayerScene& s) {
       interleave(s);
       s.args.b.shape[2] = 4;
     },
     "layer_prefill: b.shape[2] = 4, expected 8 (2 HV, INTERLEAVED)"},
    {"a_absent", [](LayerScene& s) { s.args.a = {}; },
     "layer_prefill: a = absent, expected a view of rank 3 (required)"},
    {"a_width", [](LayerScene& s) { s.args.a.shape[2] = 2; },
     "layer_prefill: a.shape[2] = 2, expected 4 (HV)"},
    {"a_interleaved",
     [](LayerScene& s) {
       const sluice_tensor a = s.args.a;
       interleave(s);
       s.args.a = a;
     },
     "layer_prefill: a = given, expected absent (packing INTERLEAVED has it in b)"},
    {"conv_weight_channels", [](LayerScene& s) { s.args.conv_weight.shape[0] = 16; },
     "layer_prefill: conv_weight.shape[0] = 16, expected 40 (2 H K + HV V channels)"},
    {"conv_weight_width", [](LayerScene& s) { s.args.conv_weight.shape[1] = 5; },
     "layer_prefill: conv_weight.shape[1] = 5, expected 2, 3 or 4 (width W)"},
    {"conv_weight_stride", [](LayerScene& s) { s.args.conv_weight.stride[1] = 3; },
     "layer_prefill: conv_weight.stride[1] = 3, expected 1 (contiguous last dimension)"},
    {"conv_bias_size", [](LayerScene& s) { s.args.conv_bias = s.memory->tensor(kFloat32, {39}); },
     "layer_prefill: conv_bias.shape[0] = 39, expected 40 (2 H K + HV V channels)"},
    {"A_log_absent", [](LayerScene& s) { s.args.A_log = {}; },
     "layer_prefill: A_log = absent, expected a view of rank 1 (required)"},
    {"dt_bias_size", [](LayerScene& s) { s.args.dt_bias.shape[0] = 2; },
     "layer_prefill: dt_bias.shape[0] = 2, expected 4 (HV value heads)"},
    {"norm_weight_size", [](LayerScene& s) { s.args.norm_weight.shape[0] = 4; },
     "layer_prefill: norm_weight.shape[0] = 4, expected 6 (V)"},
    {"out_absent", [](LayerScene& s) { s.args.out = {}; },
     "layer_prefill: out = absent, expected a view of rank 4 (required)"},
    {"out_heads", [](LayerScene& s) { s.args.out.shape[2] = 2; },
     "layer_prefill: out.shape[2] = 2, expected 4 (HV value heads)"},
    {"out_columns", [](LayerScene& s) { s.args.out.shape[3] = 5; },
     "layer_prefill: out.shape[3] = 5, expected 6 (V)"},
    {"out_stride", [](LayerScene& s) { s.args.out.stride[3] = 2; },
     "layer_prefill: out.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"out_shares_memory", [](LayerScene& s) { s.args.out.stride[2] = 5; },
     "layer_prefill: out.stride[2] = 5, expected >= 6 (elements of an output may not share "
     "memory)"},
    {"core_out_tokens", [](LayerScene& s) { s.args.core_out.shape[1] = 1; },
     "layer_prefill: core_out.shape[1] = 1, expected 3 (T of qkv)"},
    {"core_out_is_out", [](LayerScene& s) { s.args.core_out.data = s.args.out.data; },
     "layer_prefill: core_out.data = out.data, expected other memory (this operator cannot work in "
     "place)"},
    {"core_out_is_qkv", [](LayerScene& s) { s.args.core_out.data = s.args.qkv.data; },
     "layer_prefill: core_out.data = qkv.data, expected other memory (this operator cannot work in "
     "place)"},
    {"out_is_qkv", [](LayerScene& s) { s.args.out.data = s.args.qkv.data; },
     "layer_prefill: out.data = qkv.data, expected other memory (this operator cannot work in "
     "place)"},
    {"out_is_z", [](LayerScene& s) { s.args.out.data = s.args.z.data; },
     "layer_prefill: out.data = z.data, expected other memory (this operator cannot work in "
     "place)"},
};
INSTANTIATE_TEST_SUITE_P(Tensors, LayerPrefillRefusals, ::testing::ValuesIn(kTensorRows),
                         row_name<Args>);

const Row kStateRows[] = {
    {"conv_pool_channels", [](LayerScene& s) { s.args.conv_initial.shape[1] = 24; },
     "layer_prefill: conv_initial.shape[1] = 24, expected 40 (D channels)"},
    {"conv_pool_columns", [](LayerScene& s) { s.args.conv_final.shape[2] = 2; },
     "layer_prefill: conv_final.shape[2] = 2, expected >= 3 (columns, at least W - 1)"},
    {"conv_alias_stride", [](LayerScene& s) { s.args.conv_final.stride[0] = 300; },
     "layer_prefill: conv_final.stride[0] = 300, expected 240 (that of conv_initial, whose memory "
     "it is)"},
    {"ring_without_position",
     [](LayerScene& s) { s.args.conv_state_form = SLUICE_CONV_STATE_RING; },
     "layer_prefill: ring_position = absent, expected a view of rank 1 (required)"},
    {"ring_position_negative",
     [](LayerScene& s) {
       make_ring(s);
       s.args.ring_position = s.memory->indices({-1, 0});
     },
     "layer_prefill: ring_position[0] = -1, expected >= 0", Seen::kByCall},
    {"position_without_ring",
     [](LayerScene& s) {
       make_ring(s);
       s.args.conv_state_form = SLUICE_CONV_STATE_SHIFT;
     },
     "layer_prefill: ring_position = given, expected absent (SHIFT form)"},
    {"state_layout", [](LayerScene& s) { s.args.state.layout = 3; },
     "layer_prefill: state.layout = 3, expected 0 (KV) or 1 (VK)"},
    {"state_pool_shape", [](LayerScene& s) { s.args.state.initial.shape[2] = 6; },
     "layer_prefill: state.initial.shape[2] = 6, expected 4 (K, layout KV)"},
    {"slots_rank", [](LayerScene& s) { s.args.state.read_slots = s.memory->table(2, 1, {0, 1}); },
     "layer_prefill: state.read_slots rank = 2, expected 1"},
    {"offsets_with_batch", [](LayerScene& s) { s.args.cu_seqlens = s.memory->indices({0, 1}); },
     "layer_prefill: qkv.shape[0] = 2, expected 1 (packed rows have one batch entry)"},
    {"max_tokens",
     [](LayerScene& s) {
       pack(s, {0, 3, 6});
       s.args.max_tokens = -1;
     },
     "layer_prefill: max_tokens = -1, expected >= 0 (0: unknown)"},
    {"offsets_past_end", [](LayerScene& s) { pack(s, {0, 3, 9}); },
     "layer_prefill: cu_seqlens[2] = 9, expected <= 6 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"slot_past_pools", [](LayerScene& s) { s.args.state.read_slots = s.memory->indices({0, 6}); },
     "layer_prefill: state.read_slots[1,0] = 6, expected < 6 (slots of the pool)", Seen::kByCall},
    {"slot_past_conv_pool",
     [](LayerScene& s) { s.args.conv_initial.shape[0] = s.args.conv_final.shape[0] = 3; },
     "layer_prefill: state.read_slots[0,0] = 3, expected < 3 (slots of the pool)", Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(States, LayerPrefillRefusals, ::testing::ValuesIn(kStateRows),
                         row_name<Args>);

class LayerDecodeRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(LayerDecodeRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_LAYER_DECODE, GetParam(), valid_scene());
}

const Row kDecodeRows[] = {
    {"packing", [](LayerScene& s) { s.args.packing = -1; },
     "layer_decode: packing = -1, expected 0 (FLAT), 1 (INTERLEAVED) or 2 (SEPARATE)"},
    {"no_conv_state", [](LayerScene& s) { s.args.conv_initial = s.args.conv_final = {}; },
     "layer_decode: conv_initial = absent, expected a pool [slots, D, L] (required in decode)"},
    {"no_state", [](LayerScene& s) { s.args.state.initial = s.args.state.final = {}; },
     "layer_decode: state.initial = absent, expected a pool (required, unless state_writes is "
     "NONE)"},
    {"too_many_tokens",
     [](LayerScene& s) {
       for (sluice_tensor* t : {&s.args.qkv, &s.args.z, &s.args.b, &s.args.a}) t->shape[1] = 17;
       for (sluice_tensor* t : {&s.args.out, &s.args.core_out}) {
         t->shape[1] = 17;
         t->stride[0] = 17 * kHV * kV;
       }
     },
     "layer_decode: qkv.shape[1] = 17, expected <= 16 tokens (longer rows are a prefill's)"},
    {"packed_without_max_tokens", [](LayerScene& s) { pack(s, {0, 3, 6}); },
     "layer_decode: max_tokens = 0, expected 1 to 16 (bound on one sequence's tokens)"},
    {"num_accepted_with_ring",
     [](LayerScene& s) {
       speculate(s);
       make_ring(s);
     },
     "layer_decode: num_accepted = given, expected absent (a ring is rolled back by its position)"},
    {"num_accepted_columns",
     [](LayerScene& s) {
       speculate(s);
       s.args.conv_initial.shape[2] = s.args.conv_final.shape[2] = 4;
     },
     "layer_decode: conv state columns L = 4, expected >= 5 (W - 2 + tokens, with num_accepted)"},
    {"num_accepted_size",
     [](LayerScene& s) {
       speculate(s);
       s.args.num_accepted.shape[0] = 1;
     },
     "layer_decode: num_accepted.shape[0] = 1, expected 2 (N sequences)"},
    {"padded_for_one_state_only",
     [](LayerScene& s) {
       speculate(s);
       s.args.state.read_slots = s.memory->table(2, 3, {0, -1, 2, 3, 4, 5});
     },
     "layer_decode: state.read_slots[0,1] = -1, expected padding just where column 0, 0, is (a row "
     "is padding as a whole)",
     Seen::kByCall},
    {"padding_in_some_columns",
     [](LayerScene& s) {
       s.args.num_accepted = s.memory->indices({1, 2});
       s.args.state.read_slots = s.memory->table(2, 3, {0, 1, 2, 3, -1, 5});
     },
     "layer_decode: state.read_slots[1,1] = -1, expected padding just where column 0, 3, is (a row "
     "is padding as a whole)",
     Seen::kByCall},
    {"per_token_without_slots",
     [](LayerScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN; },
     "layer_decode: state.write_slots rank = 0, expected 2 ([N, >= tokens] with state_writes "
     "PER_TOKEN)"},
    {"final_not_written", [](LayerScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_NONE; },
     "layer_decode: state.final = given, expected absent (state_writes is NONE)"},
    {"stream", [](LayerScene& s) { s.stream = &s; },
     "layer_decode: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, LayerDecodeRefusals, ::testing::ValuesIn(kDecodeRows),
                         row_name<Args>);

const Row kAccepted[] = {
    {"as_is", [](LayerScene&) {}, ""},
    {"interleaved", interleave, ""},
    {"ring", make_ring, ""},
    {"no_core_out", [](LayerScene& s) { s.args.core_out = {}; }, ""},
    {"packed",
     [](LayerScene& s) {
       pack(s, {0, 3, 5});
       s.args.max_tokens = 16;
     },
     ""},
};

TEST(LayerAccepts, LegalNeighboursOfRefusals) {
  for (const sluice_op op : {SLUICE_OP_LAYER_PREFILL, SLUICE_OP_LAYER_DECODE}) {
    for (const Row& row : kAccepted) {
      SCOPED_TRACE(row.name);
      LayerScene scene = valid_scene();
      row.spoil(scene);
      expect_accepted(op, scene);
    }
  }
}

TEST(LayerAccepts, SpeculativeDecode) {
  LayerScene scene = valid_scene();
  speculate(scene);
  expect_accepted(SLUICE_OP_LAYER_DECODE, scene);
}

TEST(LayerAccepts, SlotsPastEitherPoolArePastBoth) {
  LayerScene scene = valid_scene();
  scene.args.conv_initial.shape[0] = scene.args.conv_final.shape[0] = 4;
  core::LayerProblem problem;
  core::validate(SLUICE_OP_LAYER_DECODE, scene.args, core::Depth::kShapes, &problem);
  for (const sluice_tensor& pool : {problem.delta.state.initial, problem.delta.state.final}) {
    EXPECT_EQ(pool.shape[0], 4);
  }
  EXPECT_EQ(problem.conv[2].state.final.shape[0], 4);
}

TEST(LayerAccepts, DecodeThatWritesNoState) {
  LayerScene scene = valid_scene();
  scene.args.state.final = scene.args.conv_final = {};
  scene.args.state_writes = SLUICE_STATE_WRITE_NONE;
  const std::vector<std::byte> before = scene.memory->snapshot();
  expect_accepted(SLUICE_OP_LAYER_DECODE, scene);
}

}  // namespace
}  // namespace sluice::check
