// Measures that causal_conv1d refuses every argument outside its contract, by name, and writes
// nothing then. Each table row spoils one thing in a valid call and states the whole message.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_causal_conv1d_args;
using ConvScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr sluice_op kOp = SLUICE_OP_CAUSAL_CONV1D;
constexpr int64_t kB = 2, kT = 3, kD = 6, kW = 4, kL = 5;

/// Two sequences of three tokens, states from one pool of 4 slots to another.
ConvScene valid_scene() {
  ConvScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.x = m.tensor(kFloat32, {kB, kT, kD});
  s.args.weight = m.tensor(kFloat32, {kD, kW});
  s.args.bias = m.tensor(kFloat32, {kD});
  s.args.out = m.tensor(kFloat32, {kB, kT, kD});
  s.args.state.initial = m.tensor(kFloat32, {4, kD, kL});
  s.args.state.final = m.tensor(kFloat32, {4, kD, kL});
  s.args.state.read_slots = m.indices({2, 0}, kInt64);
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  return s;
}

void make_ring(ConvScene& s) {
  s.args.state.form = SLUICE_CONV_STATE_RING;
  s.args.state.ring_position = s.memory->indices({0, 7});
}

void give_num_accepted(ConvScene& s) { s.args.state.num_accepted = s.memory->indices({1, 2}); }

/// The same rows, packed.
void pack(ConvScene& s, std::initializer_list<int64_t> offsets) {
  s.args.x.shape[0] = s.args.out.shape[0] = 1;
  s.args.x.shape[1] = s.args.out.shape[1] = kB * kT;
  s.args.cu_seqlens = s.memory->indices(offsets);
}

class CausalConv1dRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(CausalConv1dRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kTensorRows[] = {
    {"x_absent", [](ConvScene& s) { s.args.x = {}; },
     "causal_conv1d: x = absent, expected a view of rank 3 (required)"},
    {"weight_absent", [](ConvScene& s) { s.args.weight = {}; },
     "causal_conv1d: weight = absent, expected a view of rank 2 (required)"},
    {"out_absent", [](ConvScene& s) { s.args.out = {}; },
     "causal_conv1d: out = absent, expected a view of rank 3 (required)"},
    {"x_dtype", [](ConvScene& s) { s.args.x.dtype = kInt32; },
     "causal_conv1d: x dtype = int32, expected float32, float16 or bfloat16"},
    {"no_channels", [](ConvScene& s) { s.args.x.shape[2] = 0; },
     "causal_conv1d: x.shape[2] = 0, expected >= 1 (channels D)"},
    {"weight_of_conv1d",
     [](ConvScene& s) {
       s.args.weight.rank = 3;
       s.args.weight.shape[2] = s.args.weight.shape[1];
       s.args.weight.shape[1] = 1;
     },
     "causal_conv1d: weight rank = 3, expected 2 ([D,W]; of torch's Conv1d, [D,1,W], pass "
     "squeeze(1))"},
    {"channels_before_tokens",
     [](ConvScene& s) {
       for (sluice_tensor* t : {&s.args.x, &s.args.out}) std::swap(t->shape[1], t->shape[2]);
     },
     "causal_conv1d: x.shape[2] = 3, expected D = 6 channels ([B,T,D]; of [B,D,T] pass "
     "transpose(1, 2): no copy is made)"},
    {"weight_channels", [](ConvScene& s) { s.args.weight.shape[0] = 5; },
     "causal_conv1d: weight.shape[0] = 5, expected 6 (D channels of x)"},
    {"width_1", [](ConvScene& s) { s.args.weight.shape[1] = 1; },
     "causal_conv1d: weight.shape[1] = 1, expected 2, 3 or 4 (width W)"},
    {"width_5", [](ConvScene& s) { s.args.weight.shape[1] = 5; },
     "causal_conv1d: weight.shape[1] = 5, expected 2, 3 or 4 (width W)"},
    {"weight_stride", [](ConvScene& s) { s.args.weight.stride[1] = 6; },
     "causal_conv1d: weight.stride[1] = 6, expected 1 (contiguous last dimension)"},
    {"bias_size", [](ConvScene& s) { s.args.bias.shape[0] = 4; },
     "causal_conv1d: bias.shape[0] = 4, expected 6 (D channels of x)"},
    {"bias_rank", [](ConvScene& s) { s.args.bias.rank = 2; },
     "causal_conv1d: bias rank = 2, expected 1"},
    {"out_shape", [](ConvScene& s) { s.args.out.shape[1] = 2; },
     "causal_conv1d: out.shape[1] = 2, expected 3 (shape of x)"},
    {"out_shares_memory", [](ConvScene& s) { s.args.out.stride[2] = 0; },
     "causal_conv1d: out.stride[2] = 0, expected >= 1 (elements of an output may not share "
     "memory)"},
    {"in_place", [](ConvScene& s) { s.args.out.data = s.args.x.data; },
     "causal_conv1d: out.data = x.data, expected other memory (this operator cannot work in "
     "place)"},
    {"activation", [](ConvScene& s) { s.args.activation = SLUICE_ACTIVATION_SIGMOID; },
     "causal_conv1d: activation = 2, expected 0 (NONE) or 1 (SILU)"},
    {"implementation", [](ConvScene& s) { s.args.implementation = 9; },
     "causal_conv1d: implementation = 9, expected 0 to 4 (sluice_implementation)"},
    {"stream", [](ConvScene& s) { s.stream = &s; },
     "causal_conv1d: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
    {"offsets_with_batch", [](ConvScene& s) { s.args.cu_seqlens = s.memory->indices({0, 1, 3}); },
     "causal_conv1d: x.shape[0] = 2, expected 1 (packed rows have one batch entry)"},
    {"offsets_descend", [](ConvScene& s) { pack(s, {0, 5, 4}); },
     "causal_conv1d: cu_seqlens[2] = 4, expected >= 5 (ascending from 0, at most T = 6)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Tensors, CausalConv1dRefusals, ::testing::ValuesIn(kTensorRows),
                         row_name<Args>);

const Row kStateRows[] = {
    {"form", [](ConvScene& s) { s.args.state.form = 2; },
     "causal_conv1d: state.form = 2, expected 0 (SHIFT) or 1 (RING)"},
    {"reserved", [](ConvScene& s) { s.args.state.reserved = 1; },
     "causal_conv1d: reserved = 1, expected 0"},
    {"pad_below", [](ConvScene& s) { s.args.state.pad_below = -2; },
     "causal_conv1d: state.pad_below = -2, expected >= 0"},
    {"slots_rank", [](ConvScene& s) { s.args.state.read_slots = s.memory->table(2, 1, {0, 1}); },
     "causal_conv1d: state.read_slots rank = 2, expected 1"},
    {"slots_size", [](ConvScene& s) { s.args.state.write_slots = s.memory->indices({1}); },
     "causal_conv1d: state.write_slots.shape[0] = 1, expected 2 (N sequences)"},
    {"flags_dtype",
     [](ConvScene& s) { s.args.state.has_initial_state = s.memory->tensor(kInt64, {2}); },
     "causal_conv1d: state.has_initial_state dtype = int64, expected bool or uint8"},
    {"pool_rank", [](ConvScene& s) { s.args.state.initial.rank = 2; },
     "causal_conv1d: state.initial rank = 2, expected 3"},
    {"pool_channels", [](ConvScene& s) { s.args.state.initial.shape[1] = 5; },
     "causal_conv1d: state.initial.shape[1] = 5, expected 6 (D channels)"},
    {"pool_columns", [](ConvScene& s) { s.args.state.initial.shape[2] = 2; },
     "causal_conv1d: state.initial.shape[2] = 2, expected >= 3 (columns, at least W - 1)"},
    {"pool_slots",
     [](ConvScene& s) {
       s.args.state.read_slots = {};
       s.args.state.initial.shape[0] = 1;
     },
     "causal_conv1d: state.initial.shape[0] = 1, expected >= 2 (slots for N sequences without slot "
     "indices)"},
    {"final_slots",
     [](ConvScene& s) {
       s.args.state.read_slots = {};
       s.args.state.final.shape[0] = 0;
     },
     "causal_conv1d: state.final.shape[0] = 0, expected >= 2 (slots for N sequences without slot "
     "indices)"},
    {"final_columns", [](ConvScene& s) { s.args.state.final.shape[2] = 4; },
     "causal_conv1d: state.final.shape[2] = 4, expected 5 (columns of the initial state)"},
    {"final_shares_memory", [](ConvScene& s) { s.args.state.final.stride[1] = 4; },
     "causal_conv1d: state.final.stride[1] = 4, expected >= 5 (elements of an output may not share "
     "memory)"},
    {"alias_dtype",
     [](ConvScene& s) {
       s.args.state.final = s.args.state.initial;
       s.args.state.final.dtype = kBFloat16;
     },
     "causal_conv1d: state.final dtype = bfloat16, expected float32 (that of "
     "state.initial)"},
    {"alias_stride",
     [](ConvScene& s) {
       s.args.state.final = s.args.state.initial;
       s.args.state.final.stride[1] = 1;
       s.args.state.final.stride[2] = kD;
     },
     "causal_conv1d: state.final.stride[1] = 1, expected 5 (that of state.initial, whose memory it "
     "is)"},
    {"num_accepted_size",
     [](ConvScene& s) {
       give_num_accepted(s);
       s.args.state.num_accepted.shape[0] = 1;
     },
     "causal_conv1d: state.num_accepted.shape[0] = 1, expected 2 (N sequences)"},
    {"num_accepted_with_ring",
     [](ConvScene& s) {
       give_num_accepted(s);
       make_ring(s);
     },
     "causal_conv1d: state.num_accepted = given, expected absent (a ring is rolled back by its "
     "position)"},
    {"num_accepted_columns",
     [](ConvScene& s) {
       give_num_accepted(s);
       s.args.state.initial.shape[2] = s.args.state.final.shape[2] = 4;
     },
     "causal_conv1d: conv state columns L = 4, expected >= 5 (W - 2 + tokens, with num_accepted)"},
    {"num_accepted_columns_packed",
     [](ConvScene& s) {
       give_num_accepted(s);
       pack(s, {0, 2, 6});
     },
     "causal_conv1d: conv state columns L = 5, expected >= 6 (W - 2 + tokens, with num_accepted)",
     Seen::kByCall},
    {"ring_without_position", [](ConvScene& s) { s.args.state.form = SLUICE_CONV_STATE_RING; },
     "causal_conv1d: state.ring_position = absent, expected a view of rank 1 (required)"},
    {"ring_position_size",
     [](ConvScene& s) {
       make_ring(s);
       s.args.state.ring_position.shape[0] = 3;
     },
     "causal_conv1d: state.ring_position.shape[0] = 3, expected 2 (N sequences)"},
    {"ring_position_negative",
     [](ConvScene& s) {
       make_ring(s);
       s.args.state.ring_position = s.memory->indices({4, -1}, kInt64);
     },
     "causal_conv1d: state.ring_position[1] = -1, expected >= 0", Seen::kByCall},
    {"ring_position_near_overflow",
     [](ConvScene& s) {
       make_ring(s);
       s.args.state.ring_position = s.memory->indices({4, INT64_MAX - 1}, kInt64);
     },
     "causal_conv1d: state.ring_position[1] = 9223372036854775806, expected at most 2^62",
     Seen::kByCall},
    {"position_without_ring",
     [](ConvScene& s) {
       make_ring(s);
       s.args.state.form = SLUICE_CONV_STATE_SHIFT;
     },
     "causal_conv1d: state.ring_position = given, expected absent (SHIFT form)"},
    {"read_slot_past_pool",
     [](ConvScene& s) { s.args.state.read_slots = s.memory->indices({4, 0}); },
     "causal_conv1d: state.read_slots[0,0] = 4, expected < 4 (slots of the pool)", Seen::kByCall},
    {"write_slot_past_pool",
     [](ConvScene& s) { s.args.state.write_slots = s.memory->indices({0, 5}); },
     "causal_conv1d: state.write_slots[1,0] = 5, expected < 4 (slots of the pool)", Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(States, CausalConv1dRefusals, ::testing::ValuesIn(kStateRows),
                         row_name<Args>);

const Row kAccepted[] = {
    {"as_is", [](ConvScene&) {}, ""},
    {"ring", make_ring, ""},
    {"num_accepted", give_num_accepted, ""},
    {"num_accepted_packed",
     [](ConvScene& s) {
       give_num_accepted(s);
       pack(s, {0, 3, 6});
     },
     ""},
    {"channel_first",
     [](ConvScene& s) {
       for (sluice_tensor* t : {&s.args.x, &s.args.out}) t->stride[1] = 1, t->stride[2] = kT;
     },
     ""},
    {"columns_outside_channels",
     [](ConvScene& s) {
       for (sluice_tensor* t : {&s.args.state.initial, &s.args.state.final}) {
         t->stride[1] = 1;
         t->stride[2] = kD;
       }
     },
     ""},
    {"no_state", [](ConvScene& s) { s.args.state = {}; }, ""},
};

TEST(CausalConv1dAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    SCOPED_TRACE(row.name);
    ConvScene scene = valid_scene();
    row.spoil(scene);
    expect_accepted(kOp, scene);
  }
}

}  // namespace
}  // namespace sluice::check
