// Measures that a step with a replay ring refuses what its contract excludes, by name, and writes
// nothing then. Each table row spoils one thing in a valid call.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_recurrent_step_args;
using StepScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr sluice_op kOp = SLUICE_OP_RECURRENT_STEP;
constexpr int64_t kN = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 5, kSlots = 3, kL = 8;

/// Two sequences of three drafted tokens; three and no live entries.
StepScene valid_scene() {
  StepScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.q = m.tensor(kBFloat16, {kN, kT, kH, kK});
  s.args.k = m.tensor(kBFloat16, {kN, kT, kH, kK});
  s.args.v = m.tensor(kBFloat16, {kN, kT, kHV, kV});
  s.args.o = m.tensor(kBFloat16, {kN, kT, kHV, kV});
  s.args.state.initial = m.tensor(kFloat32, {kSlots, kHV, kK, kV});
  s.args.state.read_slots = m.indices({2, 0});
  s.args.ring.k = m.tensor(kBFloat16, {kSlots, kL, kH, kK});
  s.args.ring.delta = m.tensor(kFloat16, {kSlots, kL, kHV, kV});
  s.args.ring.decay = m.tensor(kFloat32, {kSlots, kL, kHV});
  s.args.ring.position = m.indices({9, 4}, kInt64);
  s.args.ring.checkpoint = m.indices({6, 4});
  s.args.ring.next_checkpoint = m.indices({0, 0});
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

class RingRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(RingRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kRows[] = {
    {"reserved", [](StepScene& s) { s.args.ring.reserved = 1; },
     "recurrent_step: reserved = 1, expected 0"},
    {"fold", [](StepScene& s) { s.args.ring.fold = 2; },
     "recurrent_step: ring.fold = 2, expected 0 (AUTO) or 1 (ALWAYS)"},
    {"delta_alone", [](StepScene& s) { s.args.ring.k = {}; },
     "recurrent_step: ring.delta = given, expected absent (only with ring.k)"},
    {"fold_alone", [](StepScene& s) { s.args.ring = {}, s.args.ring.fold = 1; },
     "recurrent_step: ring.fold = 1, expected 0 (only with ring.k)"},
    {"entries_in_values", [](StepScene& s) { s.args.ring.k.data = s.args.v.data; },
     "recurrent_step: ring.k.data = 0 bytes after v.data"
     ", expected memory of its own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"o_over_positions", [](StepScene& s) { s.args.o.data = s.args.ring.position.data; },
     "recurrent_step: o.data = 0 bytes after ring.position.data"
     ", expected memory of its own (what a call writes may overlap no other view)",
     Seen::kByCall},
    {"state_writes", [](StepScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_NONE; },
     "recurrent_step: state_writes = 2, expected 0 (LAST, with a replay ring)"},
    {"num_accepted",
     [](StepScene& s) {
       s.args.state.read_slots = s.memory->table(kN, 1, {2, 0});
       s.args.num_accepted = s.memory->indices({1, 1});
     },
     "recurrent_step: num_accepted = given, expected absent (a replay ring is rolled back by its "
     "position)"},
    {"key_gates", [](StepScene& s) { s.args.gate = s.memory->tensor(kFloat32, {kN, kT, kHV, kK}); },
     "recurrent_step: gate rank = 4, expected 3 (a replay ring has one decay an entry)"},
    {"final", [](StepScene& s) { s.args.state.final = s.memory->tensor(kFloat32, {3, 4, 4, 5}); },
     "recurrent_step: state.final = other memory, expected absent (a replay ring works in place)"},
    {"columns_of_slots",
     [](StepScene& s) { s.args.state.read_slots = s.memory->table(kN, 1, {2, 0}); },
     "recurrent_step: state.read_slots rank = 2, expected 1 (with a replay ring)"},
    {"write_slots", [](StepScene& s) { s.args.state.write_slots = s.memory->indices({2, 0}); },
     "recurrent_step: state.write_slots = given, expected absent (a replay ring works in place)"},
    {"k_rank", [](StepScene& s) { s.args.ring.k.rank = 3; },
     "recurrent_step: ring.k rank = 3, expected 4"},
    {"no_delta", [](StepScene& s) { s.args.ring.delta = {}; },
     "recurrent_step: ring.delta = absent, expected a view of rank 4 (required)"},
    {"no_decay", [](StepScene& s) { s.args.ring.decay = {}; },
     "recurrent_step: ring.decay = absent, expected a view of rank 3 (required)"},
    {"few_entries", [](StepScene& s) { s.args.ring.k.shape[1] = 5; },
     "recurrent_step: ring.k.shape[1] = 5, expected 6 to 16 entries (twice the most tokens of a "
     "call)"},
    {"many_tokens",
     [](StepScene& s) {
       for (sluice_tensor* view : {&s.args.q, &s.args.k, &s.args.v, &s.args.o}) {
         view->shape[0] = 1, view->shape[1] = 9;
       }
       s.args.cu_seqlens = s.memory->indices({0, 4, 9});
       s.args.max_tokens = 9;
       s.args.ring.k.shape[1] = 18;
     },
     "recurrent_step: ring.k = given, expected absent (9 tokens a call, twice of which are more "
     "than "
     "16 entries)"},
    {"many_entries", [](StepScene& s) { s.args.ring.k.shape[1] = 17; },
     "recurrent_step: ring.k.shape[1] = 17, expected 6 to 16 entries (twice the most tokens of a "
     "call)"},
    {"slots", [](StepScene& s) { s.args.ring.k.shape[0] = 2; },
     "recurrent_step: ring.k.shape[0] = 2, expected 3 (slots of state.initial)"},
    {"key_heads", [](StepScene& s) { s.args.ring.k.shape[2] = 4; },
     "recurrent_step: ring.k.shape[2] = 4, expected 2 (H key heads)"},
    {"K",
     [](StepScene& s) {
       s.args.ring.k.shape[3] = 3, s.args.ring.k.stride[2] = 3, s.args.ring.k.stride[1] = 6;
     },
     "recurrent_step: ring.k.shape[3] = 3, expected 4 (K of q)"},
    {"inside", [](StepScene& s) { s.args.ring.k.stride[1] = 16; },
     "recurrent_step: ring.k.stride[1] = 16, expected 8 (contiguous inside a slot)"},
    {"overlap", [](StepScene& s) { s.args.ring.k.stride[0] = 60; },
     "recurrent_step: ring.k.stride[0] = 60, expected >= 64 (slots may not overlap)"},
    {"entries_of_delta", [](StepScene& s) { s.args.ring.delta.shape[1] = 7; },
     "recurrent_step: ring.delta.shape[1] = 7, expected 8 (L of ring.k)"},
    {"value_heads", [](StepScene& s) { s.args.ring.delta.shape[2] = 2; },
     "recurrent_step: ring.delta.shape[2] = 2, expected 4 (HV value heads)"},
    {"V", [](StepScene& s) { s.args.ring.delta = s.memory->tensor(kFloat16, {3, 8, 4, 4}); },
     "recurrent_step: ring.delta.shape[3] = 4, expected 5 (V of v)"},
    {"decay_heads", [](StepScene& s) { s.args.ring.decay.shape[2] = 3; },
     "recurrent_step: ring.decay.shape[2] = 3, expected 4 (HV value heads)"},
    {"decay_dtype",
     [](StepScene& s) { s.args.ring.decay = s.memory->tensor(kBFloat16, {3, 8, 4}); },
     "recurrent_step: ring.decay dtype = bfloat16, expected float32"},
    {"no_position", [](StepScene& s) { s.args.ring.position = {}; },
     "recurrent_step: ring.position = absent, expected a view of rank 1 (required)"},
    {"checkpoint_size", [](StepScene& s) { s.args.ring.checkpoint.shape[0] = 3; },
     "recurrent_step: ring.checkpoint.shape[0] = 3, expected 2 (N sequences)"},
    {"next_size", [](StepScene& s) { s.args.ring.next_checkpoint.shape[0] = 1; },
     "recurrent_step: ring.next_checkpoint.shape[0] = 1, expected 2 (N sequences)"},
    {"next_in_place", [](StepScene& s) { s.args.ring.next_checkpoint = s.args.ring.checkpoint; },
     "recurrent_step: ring.next_checkpoint.data = ring.checkpoint.data, expected other memory "
     "(this "
     "operator cannot work in place)"},
    {"negative_position", [](StepScene& s) { s.args.ring.position = s.memory->indices({-1, 4}); },
     "recurrent_step: ring.position[0] = -1, expected 0 to 2^31 - 1", Seen::kByCall},
    {"large_position",
     [](StepScene& s) { s.args.ring.position = s.memory->indices({9, int64_t{1} << 31}, kInt64); },
     "recurrent_step: ring.position[1] = 2147483648, expected 0 to 2^31 - 1", Seen::kByCall},
    {"checkpoint_ahead", [](StepScene& s) { s.args.ring.checkpoint = s.memory->indices({6, 5}); },
     "recurrent_step: ring.checkpoint[1] = 5, expected 0 to 4 (position 4, L - tokens 5)",
     Seen::kByCall},
    {"checkpoint_behind", [](StepScene& s) { s.args.ring.checkpoint = s.memory->indices({3, 4}); },
     "recurrent_step: ring.checkpoint[0] = 3, expected 4 to 9 (position 9, L - tokens 5)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rules, RingRefusals, ::testing::ValuesIn(kRows), row_name<Args>);

const Row kAccepted[] = {
    {"as_is", [](StepScene&) {}, ""},
    {"no_next", [](StepScene& s) { s.args.ring.next_checkpoint = {}; }, ""},
    {"always", [](StepScene& s) { s.args.ring.fold = SLUICE_RING_FOLD_ALWAYS; }, ""},
    {"wide_slots",
     [](StepScene& s) {
       s.args.ring.k = s.memory->tensor(kFloat32, {kSlots, 2 * kL, kH, kK});
       s.args.ring.k.shape[1] = kL;
     },
     ""},
    {"final_is_initial", [](StepScene& s) { s.args.state.final = s.args.state.initial; }, ""},
    {"padding_has_no_cursor",
     [](StepScene& s) {
       s.args.state.read_slots = s.memory->indices({2, -1});
       s.args.ring.position = s.memory->indices({9, -7});
     },
     ""},
};

TEST(RingAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    for (const auto implementation : {SLUICE_IMPL_REFERENCE, SLUICE_IMPL_CPU}) {
      SCOPED_TRACE(row.name);
      StepScene scene = valid_scene();
      row.spoil(scene);
      scene.args.implementation = implementation;
      expect_accepted(kOp, scene);
    }
  }
}

}  // namespace
}  // namespace sluice::check
