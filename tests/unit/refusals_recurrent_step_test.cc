// Measures that recurrent_step refuses what its contract excludes beyond chunk_forward's rules, by
// name, and writes nothing then. Each table row spoils one thing in a valid call.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

using Args = sluice_recurrent_step_args;
using StepScene = Scene<Args>;
using Row = Refusal<Args>;

constexpr sluice_op kOp = SLUICE_OP_RECURRENT_STEP;
constexpr int64_t kN = 2, kT = 3, kH = 2, kHV = 4, kK = 4, kV = 5;

/// Two sequences of three drafted tokens, states in place in a pool of 8 slots.
StepScene valid_scene() {
  StepScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.q = m.tensor(kBFloat16, {kN, kT, kH, kK});
  s.args.k = m.tensor(kBFloat16, {kN, kT, kH, kK});
  s.args.v = m.tensor(kBFloat16, {kN, kT, kHV, kV});
  s.args.gate = m.tensor(kFloat32, {kN, kT, kHV});
  s.args.beta = m.tensor(kFloat32, {kN, kT, kHV});
  s.args.o = m.tensor(kBFloat16, {kN, kT, kHV, kV});
  s.args.state.initial = m.tensor(kFloat32, {8, kHV, kK, kV});
  s.args.state.read_slots = m.table(kN, kT, {0, 1, 2, 3, 4, 5});
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

/// The same rows, packed.
void pack(StepScene& s, std::initializer_list<int64_t> offsets, int64_t max_tokens) {
  for (sluice_tensor* t :
       {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o}) {
    t->shape[0] = 1;
    t->shape[1] = kN * kT;
  }
  s.args.cu_seqlens = s.memory->indices(offsets);
  s.args.max_tokens = max_tokens;
}

void give_num_accepted(StepScene& s) { s.args.num_accepted = s.memory->indices({1, 3}); }

void write_no_states(StepScene& s) {
  s.args.state_writes = SLUICE_STATE_WRITE_NONE;
  s.args.state.initial = s.args.state.read_slots = {};
}

class RecurrentStepRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(RecurrentStepRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kRows[] = {
    {"state_writes", [](StepScene& s) { s.args.state_writes = 3; },
     "recurrent_step: state_writes = 3, expected 0 (LAST), 1 (PER_TOKEN) or 2 (NONE)"},
    {"reserved", [](StepScene& s) { s.args.options.reserved = -5; },
     "recurrent_step: reserved = -5, expected 0"},
    {"state_reserved", [](StepScene& s) { s.args.state.reserved = 2; },
     "recurrent_step: reserved = 2, expected 0"},
    {"grouped_heads", [](StepScene& s) { s.args.v.shape[2] = s.args.o.shape[2] = 3; },
     "recurrent_step: v.shape[2] = 3, expected a multiple of H = 2 (grouped value heads)"},
    {"k_dtype", [](StepScene& s) { s.args.k.dtype = kFloat16; },
     "recurrent_step: k dtype = float16, expected bfloat16 (that of q)"},
    {"o_is_v", [](StepScene& s) { s.args.o.data = s.args.v.data; },
     "recurrent_step: o.data = v.data, expected other memory (this operator cannot work in place)"},
    {"too_many_tokens",
     [](StepScene& s) {
       for (sluice_tensor* t :
            {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o}) {
         t->shape[1] = 17;
       }
       s.args.o.stride[0] = 17 * kHV * kV;
     },
     "recurrent_step: q.shape[1] = 17, expected <= 16 tokens (longer rows are a prefill's)"},
    {"packed_without_max_tokens", [](StepScene& s) { pack(s, {0, 3, 6}, 0); },
     "recurrent_step: max_tokens = 0, expected 1 to 16 (bound on one sequence's tokens)"},
    {"max_tokens_too_large", [](StepScene& s) { pack(s, {0, 3, 6}, 17); },
     "recurrent_step: max_tokens = 17, expected 1 to 16 (bound on one sequence's tokens)"},
    {"longer_than_max_tokens", [](StepScene& s) { pack(s, {0, 2, 6}, 3); },
     "recurrent_step: cu_seqlens[2] - cu_seqlens[1] = 4, expected <= 3 (max_tokens)",
     Seen::kByCall},
    {"offsets_with_batch", [](StepScene& s) { s.args.cu_seqlens = s.memory->indices({0, 3, 3}); },
     "recurrent_step: q.shape[0] = 2, expected 1 (packed rows have one batch entry)"},
    {"offsets_descend", [](StepScene& s) { pack(s, {0, 3, 2}, 3); },
     "recurrent_step: cu_seqlens[2] = 2, expected >= 3 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"no_pool", [](StepScene& s) { s.args.state.initial = {}; },
     "recurrent_step: state.initial = absent, expected a pool (required, unless state_writes is "
     "NONE)"},
    {"final_not_written",
     [](StepScene& s) {
       s.args.state_writes = SLUICE_STATE_WRITE_NONE;
       s.args.state.final = s.args.state.initial;
     },
     "recurrent_step: state.final = given, expected absent (state_writes is NONE)"},
    {"write_slots_not_used",
     [](StepScene& s) {
       s.args.state_writes = SLUICE_STATE_WRITE_NONE;
       s.args.state.write_slots = s.memory->indices({0, 1});
     },
     "recurrent_step: state.write_slots = given, expected absent (state_writes is NONE)"},
    {"per_token_without_slots",
     [](StepScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN; },
     "recurrent_step: state.write_slots rank = 0, expected 2 ([N, >= tokens] with state_writes "
     "PER_TOKEN)"},
    {"per_token_with_flat_slots",
     [](StepScene& s) {
       s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
       s.args.state.write_slots = s.memory->indices({0, 1});
     },
     "recurrent_step: state.write_slots rank = 1, expected 2 ([N, >= tokens] with state_writes "
     "PER_TOKEN)"},
    {"per_token_with_few_columns",
     [](StepScene& s) {
       s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
       s.args.state.write_slots = s.memory->table(kN, 2, {0, 1, 2, 3});
     },
     "recurrent_step: state.write_slots.shape[1] = 2, expected >= 3 (columns, one a token)"},
    {"per_token_packed_with_few_columns",
     [](StepScene& s) {
       pack(s, {0, 3, 6}, 5);
       s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
       s.args.state.write_slots = s.memory->table(kN, 4, {0, 1, 2, 3, 4, 5, 6, 7});
     },
     "recurrent_step: state.write_slots.shape[1] = 4, expected >= 5 (columns, one a token)"},
    {"slots_rank", [](StepScene& s) { s.args.state.read_slots.rank = 3; },
     "recurrent_step: state.read_slots rank = 3, expected 1"},
    {"slots_size", [](StepScene& s) { s.args.state.read_slots.shape[0] = 1; },
     "recurrent_step: state.read_slots.shape[0] = 1, expected 2 (N sequences)"},
    {"slots_no_columns", [](StepScene& s) { s.args.state.read_slots.shape[1] = 0; },
     "recurrent_step: state.read_slots.shape[1] = 0, expected >= 1 (columns, one a token)"},
    {"pool_slots",
     [](StepScene& s) {
       s.args.state.read_slots = {};
       s.args.state.initial.shape[0] = 1;
     },
     "recurrent_step: state.initial.shape[0] = 1, expected >= 2 (slots for N sequences without "
     "slot indices)"},
    {"num_accepted_without_slots",
     [](StepScene& s) {
       give_num_accepted(s);
       s.args.state.read_slots = {};
     },
     "recurrent_step: state.read_slots rank = 0, expected 2 ([N, W] with num_accepted)"},
    {"num_accepted_with_flat_slots",
     [](StepScene& s) {
       give_num_accepted(s);
       s.args.state.read_slots = s.memory->indices({0, 1});
     },
     "recurrent_step: state.read_slots rank = 1, expected 2 ([N, W] with num_accepted)"},
    {"num_accepted_size",
     [](StepScene& s) {
       give_num_accepted(s);
       s.args.num_accepted.shape[0] = 1;
     },
     "recurrent_step: num_accepted.shape[0] = 1, expected 2 (N sequences)"},
    {"num_accepted_dtype",
     [](StepScene& s) { s.args.num_accepted = s.memory->tensor(kFloat32, {2}); },
     "recurrent_step: num_accepted dtype = float32, expected int32 or int64"},
    {"slot_past_pool",
     [](StepScene& s) { s.args.state.read_slots = s.memory->table(kN, kT, {0, 1, 2, 3, 4, 8}); },
     "recurrent_step: state.read_slots[1,2] = 8, expected < 8 (slots of the pool)", Seen::kByCall},
    {"default_write_slot_past_final_pool",
     [](StepScene& s) { s.args.state.final = s.memory->tensor(kFloat32, {2, kHV, kK, kV}); },
     "recurrent_step: state.write_slots[0,2] = 2, expected < 2 (slots of the pool)", Seen::kByCall},
    {"key_gate_channels",
     [](StepScene& s) { s.args.gate = s.memory->tensor(kFloat16, {kN, kT, kHV, kV}); },
     "recurrent_step: gate.shape[3] = 5, expected 4 (K of q: key-wise gates)"},
    {"implementation", [](StepScene& s) { s.args.implementation = -1; },
     "recurrent_step: implementation = -1, expected 0 to 4 (sluice_implementation)"},
    {"stream", [](StepScene& s) { s.stream = &s; },
     "recurrent_step: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
    {"workspace", [](StepScene& s) { s.workspace.data = nullptr; },
     "recurrent_step: workspace.size = 0, expected >= 400 bytes (sluice_workspace_size tells)",
     Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL},
};
INSTANTIATE_TEST_SUITE_P(Rules, RecurrentStepRefusals, ::testing::ValuesIn(kRows), row_name<Args>);

const Row kAccepted[] = {
    {"as_is", [](StepScene&) {}, ""},
    {"num_accepted", give_num_accepted, ""},
    {"no_states_at_all", write_no_states, ""},
    {"states_only_read", [](StepScene& s) { s.args.state_writes = SLUICE_STATE_WRITE_NONE; }, ""},
    {"per_token",
     [](StepScene& s) {
       s.args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
       s.args.state.write_slots = s.args.state.read_slots;
     },
     ""},
    {"packed", [](StepScene& s) { pack(s, {0, 0, 3}, 16); }, ""},
    {"key_gates", [](StepScene& s) { s.args.gate = s.memory->tensor(kFloat16, {kN, kT, kHV, kK}); },
     ""},
    {"raw_key_gates",
     [](StepScene& s) {
       s.args.options.gate_space = SLUICE_GATE_RAW;
       s.args.gate = s.memory->tensor(kFloat16, {kN, kT, kHV, kK});
       s.args.A_log = s.memory->tensor(kFloat32, {kHV});
     },
     ""},
    {"bounded_key_gates",
     [](StepScene& s) {
       s.args.options.gate_space = SLUICE_GATE_RAW_BOUNDED;
       s.args.options.gate_lower_bound = -1e30;
       s.args.gate = s.memory->tensor(kFloat16, {kN, kT, kHV, kK});
       s.args.dt_bias = s.memory->tensor(kFloat16, {kHV, kK});
     },
     ""},
    {"no_tokens",
     [](StepScene& s) {
       for (sluice_tensor* t :
            {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o}) {
         t->shape[1] = 0;
       }
     },
     ""},
};

TEST(RecurrentStepAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    SCOPED_TRACE(row.name);
    StepScene scene = valid_scene();
    row.spoil(scene);
    expect_accepted(kOp, scene);
  }
}

}  // namespace
}  // namespace sluice::check
