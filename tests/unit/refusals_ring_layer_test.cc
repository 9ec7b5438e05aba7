// Measures what layer_decode refuses and accepts beside a replay ring, and that layer_prefill has
// none. The ring's own rules are those of refusals_ring_test.cc. Each table row spoils one thing in
// a valid call.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_layer_args;
using LayerScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr int64_t kN = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 6, kW = 4, kSlots = 3, kL = 8;
constexpr int64_t kChannels = 2 * kH * kK + kHV * kV;

/// Two sequences of three drafted tokens; convolution states go by the ring's position.
LayerScene valid_scene() {
  LayerScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.qkv = m.tensor(kBFloat16, {kN, kT, kChannels});
  s.args.z = m.tensor(kBFloat16, {kN, kT, kHV * kV});
  s.args.b = m.tensor(kBFloat16, {kN, kT, kHV});
  s.args.a = m.tensor(kBFloat16, {kN, kT, kHV});
  s.args.conv_weight = m.tensor(kBFloat16, {kChannels, kW});
  s.args.A_log = m.tensor(kFloat32, {kHV});
  s.args.dt_bias = m.tensor(kFloat32, {kHV});
  s.args.norm_weight = m.tensor(kFloat32, {kV});
  s.args.out = m.tensor(kBFloat16, {kN, kT, kHV, kV});
  s.args.conv_initial = m.tensor(kBFloat16, {kSlots, kChannels, kW - 1 + kT});
  s.args.conv_state_form = SLUICE_CONV_STATE_RING;
  s.args.state.initial = m.tensor(kFloat32, {kSlots, kHV, kK, kV});
  s.args.state.read_slots = m.indices({2, 0});
  s.args.ring.k = m.tensor(kBFloat16, {kSlots, kL, kH, kK});
  s.args.ring.delta = m.tensor(kFloat16, {kSlots, kL, kHV, kV});
  s.args.ring.decay = m.tensor(kFloat32, {kSlots, kL, kHV});
  s.args.ring.position = m.indices({9, 4});
  s.args.ring_position = s.args.ring.position;
  s.args.ring.checkpoint = m.indices({6, 4});
  s.args.ring.next_checkpoint = m.indices({0, 0});
  s.args.num_k_heads = kH, s.args.num_v_heads = kHV;
  s.args.head_k_dim = kK, s.args.head_v_dim = kV;
  s.args.gate_activation = SLUICE_ACTIVATION_SILU;
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(32768), 32768};
  return s;
}

/// Convolution states that shift and are rolled back by a number.
void shift(LayerScene& s) {
  s.args.conv_state_form = SLUICE_CONV_STATE_SHIFT;
  s.args.ring_position = {};
  s.args.num_accepted = s.memory->indices({2, 1});
}

class RingLayerRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(RingLayerRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_LAYER_DECODE, GetParam(), valid_scene());
}

const Row kRows[] = {
    {"reserved", [](LayerScene& s) { s.args.ring.reserved = 1; },
     "layer_decode: reserved = 1, expected 0"},
    {"delta_alone", [](LayerScene& s) { s.args.ring.k = {}; },
     "layer_decode: ring.delta = given, expected absent (only with ring.k)"},
    {"entries_in_projections", [](LayerScene& s) { s.args.ring.delta.data = s.args.z.data; },
     "layer_decode: ring.delta.data = 0 bytes after z.data"
     ", expected memory of its own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"out_over_positions",
     [](LayerScene& s) {
       s.args.ring.position = s.memory->indices({9, 4});  // no longer the convolution's
       s.args.out.data = s.args.ring.position.data;
     },
     "layer_decode: out.data = 0 bytes after ring.position.data"
     ", expected memory of its own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"state_writes", [](LayerScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_NONE; },
     "layer_decode: state_writes = 2, expected 0 (LAST, with a replay ring)"},
    {"write_slots", [](LayerScene& s) { s.args.state.write_slots = s.memory->indices({2, 0}); },
     "layer_decode: state.write_slots = given, expected absent (a replay ring works in place)"},
    {"final",
     [](LayerScene& s) { s.args.state.final = s.memory->tensor(kFloat32, {kSlots, kHV, kK, kV}); },
     "layer_decode: state.final = other memory, expected absent (a replay ring works in place)"},
    {"slots_per_token",
     [](LayerScene& s) {
       shift(s);
       s.args.state.read_slots = s.memory->table(kN, 1, {2, 0});
     },
     "layer_decode: state.read_slots rank = 2, expected 1 (with a replay ring)"},
    {"num_accepted_beside_a_conv_ring",
     [](LayerScene& s) { s.args.num_accepted = s.memory->indices({2, 1}); },
     "layer_decode: num_accepted = given, expected absent (a ring is rolled back by its position)"},
    {"few_columns",
     [](LayerScene& s) {
       shift(s);
       s.args.conv_initial.shape[2] = kW - 1;
     },
     "layer_decode: conv state columns L = 3, expected >= 5 (W - 2 + tokens, with num_accepted)"},
    {"few_entries",
     [](LayerScene& s) {
       s.args.ring.k.shape[1] = s.args.ring.delta.shape[1] = s.args.ring.decay.shape[1] = 5;
     },
     "layer_decode: ring.k.shape[1] = 5, expected 6 to 16 entries (twice the most tokens of a "
     "call)"},
    {"key_size", [](LayerScene& s) { s.args.ring.k = s.memory->tensor(kBFloat16, {3, 8, 2, 8}); },
     "layer_decode: ring.k.shape[3] = 8, expected 4 (K of q)"},
    {"checkpoint_ahead", [](LayerScene& s) { s.args.ring.checkpoint = s.memory->indices({6, 5}); },
     "layer_decode: ring.checkpoint[1] = 5, expected 0 to 4 (position 4, L - tokens 5)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, RingLayerRefusals, ::testing::ValuesIn(kRows), row_name<Args>);

TEST(RingLayerPrefill, HasNoRing) {
  const Row row{"prefill", [](LayerScene&) {},
                "layer_prefill: ring.k = given, expected absent (only in layer_decode)"};
  expect_refused(SLUICE_OP_LAYER_PREFILL, row, valid_scene());
}

const Row kAccepted[] = {
    {"as_is", [](LayerScene&) {}, ""},
    {"shift_by_number", shift, ""},
    {"shift_where_all_is_accepted",
     [](LayerScene& s) {
       shift(s);
       s.args.num_accepted = {};
     },
     ""},
    {"own_conv_position",
     [](LayerScene& s) { s.args.ring_position = s.memory->indices({1, 2}, kInt64); }, ""},
    {"fold", [](LayerScene& s) { s.args.ring.fold = SLUICE_RING_FOLD_ALWAYS; }, ""},
    {"padding",
     [](LayerScene& s) {
       s.args.state.read_slots = s.memory->indices({2, -1});
       s.args.ring.position = s.memory->indices({9, -7});
     },
     ""},
};

TEST(RingLayerAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    for (const auto implementation : {SLUICE_IMPL_REFERENCE, SLUICE_IMPL_CPU}) {
      SCOPED_TRACE(row.name);
      LayerScene scene = valid_scene();
      row.spoil(scene);
      scene.args.implementation = implementation;
      expect_accepted(SLUICE_OP_LAYER_DECODE, scene);
    }
  }
}

}  // namespace
}  // namespace sluice::check
