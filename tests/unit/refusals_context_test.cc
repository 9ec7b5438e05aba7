// Measures that chunk_summary and state_fold refuse views, shapes and options outside their contract,
// by name, and write nothing then; rules shared with chunk_forward have a row or two here.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kB = 1, kT = 6, kH = 2, kHV = 4, kK = 4, kV = 5, kN = 2;

// ------------------------------------------------------------------------ chunk_summary ----

using SummaryScene = Scene<sluice_chunk_summary_args>;
using SummaryRow = Refusal<sluice_chunk_summary_args>;

SummaryScene valid_summary() {
  SummaryScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.k = m.tensor(kFloat32, {kB, kT, kH, kK});
  s.args.v = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.gate = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.beta = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.cu_seqlens = m.indices({0, 4, 6});
  s.args.wanted = m.indices({1, 3});
  s.args.transition = m.tensor(kFloat32, {kN, kHV, kK, kK});
  s.args.addend = m.tensor(kFloat32, {kN, kHV, kK, kV});
  s.args.forgotten = m.tensor(kBool, {kN, kHV});
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(16384), 16384};
  return s;
}

class ChunkSummaryRefusals : public ::testing::TestWithParam<SummaryRow> {};

TEST_P(ChunkSummaryRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_CHUNK_SUMMARY, GetParam(), valid_summary());
}

const SummaryRow kSummaryRows[] = {
    {"k_absent", [](SummaryScene& s) { s.args.k = {}; },
     "chunk_summary: k = absent, expected a view of rank 4 (required)"},
    {"v_absent", [](SummaryScene& s) { s.args.v = {}; },
     "chunk_summary: v = absent, expected a view of rank 4 (required)"},
    {"k_inner_stride", [](SummaryScene& s) { s.args.k.stride[3] = 2; },
     "chunk_summary: k.stride[3] = 2, expected 1 (contiguous last dimension)"},
    {"q_forward", [](SummaryScene& s) { s.args.q = s.args.k; },
     "chunk_summary: q = given, expected absent (direction FORWARD)"},
    {"d_o_forward", [](SummaryScene& s) { s.args.d_o = s.args.v; },
     "chunk_summary: d_o = given, expected absent (direction FORWARD)"},
    {"q_reverse", [](SummaryScene& s) { s.args.direction = SLUICE_DIRECTION_REVERSE; },
     "chunk_summary: q = absent, expected a view of rank 4 (required)"},
    {"d_o_reverse",
     [](SummaryScene& s) {
       s.args.direction = SLUICE_DIRECTION_REVERSE;
       s.args.q = s.args.k;
     },
     "chunk_summary: d_o = absent, expected a view of rank 4 (required)"},
    {"direction", [](SummaryScene& s) { s.args.direction = 2; },
     "chunk_summary: direction = 2, expected 0 (FORWARD) or 1 (REVERSE)"},
    {"history", [](SummaryScene& s) { s.args.history = 3; },
     "chunk_summary: history = 3, expected 0 (AUTO), 1 (STRICT) or 2 (FORGET)"},
    {"grouped_heads", [](SummaryScene& s) { s.args.v.shape[2] = 3; },
     "chunk_summary: v.shape[2] = 3, expected a multiple of H = 2 (grouped value heads)"},
    {"gate_shape", [](SummaryScene& s) { s.args.gate.shape[1] = 5; },
     "chunk_summary: gate.shape[1] = 5, expected 6 (B, T, HV of v)"},
    {"linear_beta", [](SummaryScene& s) { s.args.options.rule = SLUICE_RULE_LINEAR_ATTENTION; },
     "chunk_summary: beta = given, expected absent (rule LINEAR_ATTENTION has no delta term)"},
    {"transition_shape", [](SummaryScene& s) { s.args.transition.shape[3] = 3; },
     "chunk_summary: transition.shape[3] = 3, expected 4 (V, layout KV)"},
    {"transition_dtype", [](SummaryScene& s) { s.args.transition.dtype = kBFloat16; },
     "chunk_summary: transition dtype = {code 4, bits 16}, expected float32"},
    {"addend_pieces", [](SummaryScene& s) { s.args.addend.shape[0] = 3; },
     "chunk_summary: addend.shape[0] = 3, expected 2 (pieces)"},
    {"addend_stride", [](SummaryScene& s) { s.args.addend.stride[2] = 6; },
     "chunk_summary: addend.stride[2] = 6, expected 5 (contiguous inside a slot)"},
    {"forgotten_alone", [](SummaryScene& s) { s.args.transition = {}; },
     "chunk_summary: forgotten = given, expected absent (transition is absent)"},
    {"forgotten_dtype", [](SummaryScene& s) { s.args.forgotten.dtype = kFloat32; },
     "chunk_summary: forgotten dtype = float32, expected bool or uint8"},
    {"wanted_shape", [](SummaryScene& s) { s.args.wanted.shape[0] = 1; },
     "chunk_summary: wanted.shape[0] = 1, expected 2 (N pieces)"},
    {"reserved", [](SummaryScene& s) { s.args.reserved = 1; },
     "chunk_summary: reserved = 1, expected 0"},
    {"offsets", [](SummaryScene& s) { s.args.cu_seqlens = s.memory->indices({0, 5, 4}); },
     "chunk_summary: cu_seqlens[2] = 4, expected >= 5 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"overlap", [](SummaryScene& s) { s.args.addend.data = s.args.transition.data; },
     "chunk_summary: transition.data = 0 bytes after addend.data, expected memory of its own (what "
     "a call writes may overlap no other view)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rows, ChunkSummaryRefusals, ::testing::ValuesIn(kSummaryRows),
                         row_name<sluice_chunk_summary_args>);

// --------------------------------------------------------------------------- state_fold ----

using FoldScene = Scene<sluice_state_fold_args>;
using FoldRow = Refusal<sluice_state_fold_args>;

FoldScene valid_fold() {
  FoldScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.transition = m.tensor(kFloat32, {3, kHV, kK, kK});
  s.args.addend = m.tensor(kFloat32, {3, kHV, kK, kV});
  s.args.forgotten = m.tensor(kBool, {3, kHV});
  s.args.cu_chains = m.indices({0, 2, 3});
  s.args.route_pieces = m.indices({0, 1, 2});
  s.args.route_states = m.indices({-1, 0, 1});
  s.args.initial = m.tensor(kFloat32, {2, kHV, kK, kV});
  s.args.entering = m.tensor(kFloat32, {2, kHV, kK, kV});
  s.args.final = m.tensor(kFloat32, {2, kHV, kK, kV});
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(4096), 4096};
  return s;
}

class StateFoldRefusals : public ::testing::TestWithParam<FoldRow> {};

TEST_P(StateFoldRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(SLUICE_OP_STATE_FOLD, GetParam(), valid_fold());
}

const FoldRow kFoldRows[] = {
    {"transition_absent", [](FoldScene& s) { s.args.transition = {}; },
     "state_fold: transition = absent, expected a view of rank 4 (required)"},
    {"addend_absent", [](FoldScene& s) { s.args.addend = {}; },
     "state_fold: addend = absent, expected a view of rank 4 (required)"},
    {"transition_pieces", [](FoldScene& s) { s.args.transition.shape[0] = 2; },
     "state_fold: transition.shape[0] = 2, expected 3 (pieces)"},
    {"transition_empty_and_nowhere",
     [](FoldScene& s) { s.args.transition.data = nullptr, s.args.transition.shape[0] = 0; },
     "state_fold: transition.shape[0] = 0, expected 3 (pieces)"},
    {"transition_without_heads_and_nowhere",
     [](FoldScene& s) { s.args.transition.data = nullptr, s.args.transition.shape[1] = 0; },
     "state_fold: transition.shape[1] = 0, expected 4 (HV, K and K)"},
    {"addend_dtype", [](FoldScene& s) { s.args.addend.dtype = kFloat16; },
     "state_fold: addend dtype = {code 2, bits 16}, expected float32"},
    {"forgotten_shape", [](FoldScene& s) { s.args.forgotten.shape[1] = 3; },
     "state_fold: forgotten.shape[1] = 3, expected 4 (HV value heads)"},
    {"chains_absent", [](FoldScene& s) { s.args.cu_chains = {}; },
     "state_fold: cu_chains = absent, expected a view of rank 1 (required)"},
    {"route_length", [](FoldScene& s) { s.args.route_states.shape[0] = 2; },
     "state_fold: route_states.shape[0] = 2, expected 3 (S steps of route_pieces)"},
    {"initial_chains", [](FoldScene& s) { s.args.initial.shape[0] = 1; },
     "state_fold: initial.shape[0] = 1, expected 2 (N chains)"},
    {"layout", [](FoldScene& s) { s.args.state_layout = SLUICE_STATE_VK; },
     "state_fold: initial.shape[2] = 4, expected 5 (V, layout VK)"},
    {"direction", [](FoldScene& s) { s.args.direction = -1; },
     "state_fold: direction = -1, expected 0 (FORWARD) or 1 (REVERSE)"},
    {"piece_past_the_last",
     [](FoldScene& s) { s.args.route_pieces = s.memory->indices({0, 3, 2}); },
     "state_fold: route_pieces[1] = 3, expected < 3 (P pieces)", Seen::kByCall},
    {"state_past_the_last",
     [](FoldScene& s) { s.args.route_states = s.memory->indices({0, 1, 2}); },
     "state_fold: route_states[2] = 2, expected < 2 (states of entering)", Seen::kByCall},
    {"chains_descend", [](FoldScene& s) { s.args.cu_chains = s.memory->indices({0, 2, 1}); },
     "state_fold: cu_chains[2] = 1, expected 2 to 3 (ascending from 0, at most S)", Seen::kByCall},
    {"final_is_initial", [](FoldScene& s) { s.args.final = s.args.initial; },
     "state_fold: final.data = 0 bytes after initial.data, expected memory of its own (what a call "
     "writes may overlap no other view)",
     Seen::kByCall},
};
INSTANTIATE_TEST_SUITE_P(Rows, StateFoldRefusals, ::testing::ValuesIn(kFoldRows),
                         row_name<sluice_state_fold_args>);

TEST(ContextAccepts, TheScenesThatTheRowsSpoil) {
  expect_accepted(SLUICE_OP_CHUNK_SUMMARY, valid_summary());
  expect_accepted(SLUICE_OP_STATE_FOLD, valid_fold());
  FoldScene empty = valid_fold();  // no piece: neither map needs memory
  empty.args.transition.data = empty.args.addend.data = empty.args.forgotten.data = nullptr;
  empty.args.transition.shape[0] = empty.args.addend.shape[0] = 0;
  empty.args.route_pieces = empty.memory->indices({-1, -1, -1});
  expect_accepted(SLUICE_OP_STATE_FOLD, empty);
  SummaryScene reverse = valid_summary();
  reverse.args.direction = SLUICE_DIRECTION_REVERSE;
  reverse.args.q = reverse.memory->tensor(kFloat32, {kB, kT, kH, kK});
  reverse.args.d_o = reverse.memory->tensor(kFloat32, {kB, kT, kHV, kV});
  expect_accepted(SLUICE_OP_CHUNK_SUMMARY, reverse);
}

/// However many heads its maps, which lie nowhere, say that they have.
TEST(StateFolds, WithoutAStateToWriteAreDoneAtOnce) {
  constexpr int64_t kManyHeads = int64_t{1} << 40;
  FoldScene s = valid_fold();
  s.args.transition.data = s.args.addend.data = nullptr;
  s.args.transition.shape[0] = s.args.addend.shape[0] = 0;
  s.args.transition.shape[1] = s.args.addend.shape[1] = kManyHeads;
  s.args.forgotten = s.args.initial = s.args.entering = s.args.final = {};
  s.args.route_pieces = s.args.route_states = s.memory->indices({-1, -1, -1});
  for (const int32_t implementation : {SLUICE_IMPL_REFERENCE, SLUICE_IMPL_CPU}) {
    s.args.implementation = implementation;
    EXPECT_EQ(sluice_state_fold(&s.args, s.workspace, nullptr), SLUICE_OK) << sluice_last_error();
  }
}

TEST(StateFolds, WithEnteringStatesAloneWriteThem) {
  constexpr int64_t kState = kHV * kK * kV;
  for (const int32_t implementation : {SLUICE_IMPL_REFERENCE, SLUICE_IMPL_CPU}) {
    FoldScene s = valid_fold();
    s.args.final = {};
    s.args.implementation = implementation;
    std::fill_n(static_cast<float*>(s.args.initial.data), 2 * kState, 3.0f);
    auto* const entering = static_cast<float*>(s.args.entering.data);
    std::fill_n(entering, 2 * kState, 7.0f);
    ASSERT_EQ(sluice_state_fold(&s.args, s.workspace, nullptr), SLUICE_OK) << sluice_last_error();
    // The second chain's only step begins at its initial state.
    EXPECT_TRUE(
        std::all_of(entering + kState, entering + 2 * kState, [](float x) { return x == 3.0f; }));
  }
}

}  // namespace
}  // namespace sluice::check
