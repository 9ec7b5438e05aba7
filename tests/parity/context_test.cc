// Measures chunk_summary and state_fold against the float64 reference, and sequences cut over
// simulated ranks against uncut ones: outputs, final states and gradients.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "parity/context_call.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

std::string config_name(const ::testing::TestParamInfo<ContextConfig>& info) {
  return info.param.name;
}

/// NUM: 16-bit kernels of a GPU round operands, as in a prefill (docs/math.md 7); all others are
/// float32 arithmetic. Gradients on a GPU: as ChunkBackward's, whose kernels they are; a float32 sum of
/// a chunk's gates leaves the small ones few digits where others are -80.
Tolerance tolerance_of(const ContextConfig& c, const std::string& kernel, bool gradient = false) {
  const bool cuda = kernel.starts_with("cuda."), halves = !same_dtype(c.io, kF32);
  const bool tiles = kernel.find(".sm_90") != std::string::npos || (cuda && gradient && halves);
  const bool coarse = cuda && gradient && c.gates == GateProfile::kResets;
  const double whole = tiles ? (same_dtype(c.io, kBF16) ? .006 : .0009) : coarse ? 1e-4 : 2e-5;
  return {whole, 2 * whole, 2 * whole};
}

/// Outputs are stored in the type of the rows.
Tolerance output_tolerance(const ContextConfig& c, const std::string& kernel) {
  return tolerance_of(c, same_dtype(c.io, kF32) ? kernel : ".sm_90");
}

void expect_near(const std::string& what, const Array& found, const Array& truth,
                 const Tolerance& limits) {
  ASSERT_EQ(found.shape, truth.shape) << what;
  if (truth.size() == 0) return;
  const Verdict verdict = judge(what, compare_whole(view_of(found), view_of(truth)), limits);
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

void expect_done(const CallOutcome& outcome) {
  ASSERT_EQ(outcome.code, SLUICE_OK) << outcome.message;
  EXPECT_EQ(outcome.damage, "");
}

/// Cuts of each sequence into pieces of given lengths by turns.
std::vector<Piece> cut(const ContextConfig& c, const std::vector<int64_t>& lengths) {
  std::vector<Piece> pieces;
  int64_t start = 0, turn = 0;
  for (size_t n = 0; n < c.lengths.size(); ++n) {
    const int64_t end = start + c.lengths[n];
    do {
      const int64_t length = lengths[static_cast<size_t>(turn++) % lengths.size()];
      const int64_t stop = std::min(end, start + length);
      pieces.push_back({static_cast<int64_t>(n), start, stop});
      start = stop;
    } while (start < end);
  }
  return pieces;
}

std::vector<ContextConfig> configs() {
  std::vector<ContextConfig> all;
  const auto add = [&](const char* name, auto change) {
    for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
      ContextConfig c;
      c.rule = rule, c.seed = 17 * all.size() + 3;
      c.name = std::string(rule == SLUICE_RULE_GATED_DELTA ? "delta_" : "linear_") + name;
      change(&c);
      all.push_back(c);
    }
  };
  add("scalar", [](ContextConfig*) {});
  add("packed", [](ContextConfig* c) { c->lengths = {129, 1, 0, 200, 64}; });
  add("key_gates", [](ContextConfig* c) { c->key_gates = true, c->lengths = {150, 33}; });
  add("no_gate", [](ContextConfig* c) { c->gates = GateProfile::kNone; });
  add("strong", [](ContextConfig* c) { c->gates = GateProfile::kStrong, c->lengths = {300}; });
  add("resets", [](ContextConfig* c) { c->gates = GateProfile::kResets, c->lengths = {300}; });
  add("raw", [](ContextConfig* c) { c->gate_space = SLUICE_GATE_RAW, c->lengths = {130}; });
  add("raw_key", [](ContextConfig* c) {
    c->gate_space = SLUICE_GATE_RAW, c->key_gates = true, c->lengths = {130};
  });
  add("odd_sizes", [](ContextConfig* c) {
    c->H = 2, c->HV = 6, c->K = 40, c->V = 24, c->layout = SLUICE_STATE_VK;
  });
  add("from_zeros", [](ContextConfig* c) { c->initial = false; });
  add("bf16", [](ContextConfig* c) {
    c->io = kBF16, c->K = c->V = 128, c->lengths = {400, 77}, c->keys = KeyProfile::kRandomUnit;
  });
  add("bf16_key", [](ContextConfig* c) {
    c->io = kBF16, c->K = c->V = 64, c->lengths = {300}, c->key_gates = true;
  });
  add("fp16_wide", [](ContextConfig* c) {
    c->io = kF16, c->K = 128, c->V = 256, c->lengths = {260}, c->H = 2, c->HV = 4;
  });
  return all;
}

class ChunkSummary : public ::testing::TestWithParam<ContextConfig> {};

TEST_P(ChunkSummary, MatchesReference) {
  ContextConfig c = GetParam();
  c.history = SLUICE_HISTORY_STRICT;  // backends know of different heads that they forget
  const ContextInputs inputs(c);
  const std::vector<Piece> pieces = cut(c, {100, 64, 31});
  for (const sluice_direction direction : {SLUICE_DIRECTION_FORWARD, SLUICE_DIRECTION_REVERSE}) {
    const Maps truth = inputs.summary(pieces, direction, SLUICE_IMPL_REFERENCE);
    const Maps found = inputs.summary(pieces, direction, implementations_under_test().front());
    expect_done(truth.outcome);
    expect_done(found.outcome);
    const Tolerance limits =
        tolerance_of(c, found.outcome.kernel, direction == SLUICE_DIRECTION_REVERSE);
    expect_near("addend", found.addend, truth.addend, limits);
    expect_near("transition", found.transition, truth.transition, limits);
  }
}

TEST_P(ChunkSummary, FlagsWhatIsForgottenAndNothingElse) {
  ContextConfig c = GetParam();
  c.gates = GateProfile::kMixed, c.HV = 4, c.H = 1, c.lengths = {2000}, c.K = c.V = 32;
  c.gate_space = SLUICE_GATE_LOG;
  c.qk_norm = c.rule == SLUICE_RULE_GATED_DELTA ? SLUICE_QK_NORM_L2 : SLUICE_QK_NORM_NONE;
  const std::vector<Piece> pieces = cut(c, {1000});
  c.history = SLUICE_HISTORY_STRICT;
  const sluice_implementation implementation = implementations_under_test().front();
  const Maps strict = ContextInputs(c).summary(pieces, SLUICE_DIRECTION_FORWARD, implementation);
  c.history = SLUICE_HISTORY_FORGET;
  const Maps maps = ContextInputs(c).summary(pieces, SLUICE_DIRECTION_FORWARD, implementation);
  expect_done(maps.outcome);
  const auto size = static_cast<size_t>(c.K * c.K);
  for (size_t i = 0; i < maps.forgotten.values.size(); ++i) {
    double norm = 0.0, strict_norm = 0.0;
    for (size_t at = i * size; at < (i + 1) * size; ++at) {
      norm += maps.transition.values[at] * maps.transition.values[at];
      strict_norm += strict.transition.values[at] * strict.transition.values[at];
    }
    EXPECT_EQ(strict.forgotten.values[i], 0.0);
    if (maps.forgotten.values[i] == 0.0) continue;
    EXPECT_EQ(norm, 0.0);
    // The bound is on columns: of K of them no more than sqrt(K) times it.
    EXPECT_LE(std::sqrt(strict_norm), 0x1p-28 * std::sqrt(static_cast<double>(c.K)) * 1.01);
  }
}

INSTANTIATE_TEST_SUITE_P(Context, ChunkSummary, ::testing::ValuesIn(configs()), config_name);

TEST(ChunkSummaryParts, WhatIsNotWantedChangesNothingElse) {
  ContextConfig c;
  c.lengths = {90, 40, 70};
  const ContextInputs inputs(c);
  const std::vector<Piece> pieces = cut(c, {100});
  const sluice_implementation implementation = implementations_under_test().front();
  const Maps all = inputs.summary(pieces, SLUICE_DIRECTION_FORWARD, implementation);
  const Maps some = inputs.summary(pieces, SLUICE_DIRECTION_FORWARD, implementation, {1, 0, 3});
  expect_done(some.outcome);
  const auto half = [&](const Array& a, size_t n) {
    const size_t each = a.values.size() / 3;
    const auto at = a.values.begin() + static_cast<ptrdiff_t>(n * each);
    return std::vector<double>(at, at + static_cast<ptrdiff_t>(each));
  };
  EXPECT_EQ(half(all.addend, 0), half(some.addend, 0));
  EXPECT_EQ(half(all.addend, 2), half(some.addend, 2));
  EXPECT_EQ(half(all.transition, 2), half(some.transition, 2));
}

class StateFold : public ::testing::TestWithParam<ContextConfig> {};

TEST_P(StateFold, MatchesReference) {
  const ContextConfig& c = GetParam();
  const ContextInputs inputs(c);
  Maps maps;
  maps.transition = make_normal({5, c.HV, c.K, c.K}, c.seed + 20);
  for (double& x : maps.transition.values) x /= static_cast<double>(c.K);
  maps.addend = make_normal({5, c.HV, c.K, c.V}, c.seed + 21);
  maps.forgotten = Array({5, c.HV});
  maps.forgotten.values[1] = 1.0;
  const std::vector<std::vector<Step>> chains = {
      {{0, -1}, {3, 1}, {1, 0}, {4, -1}}, {}, {{2, 2}, {-1, 4}, {0, 3}}};
  const Array initial = c.initial ? make_normal(inputs.states_shape(3), c.seed + 22) : Array();
  for (const sluice_direction direction : {SLUICE_DIRECTION_FORWARD, SLUICE_DIRECTION_REVERSE}) {
    const Folded truth = fold(c, maps, chains, initial, direction, SLUICE_IMPL_REFERENCE);
    const Folded found =
        fold(c, maps, chains, initial, direction, implementations_under_test().front());
    expect_done(truth.outcome);
    expect_done(found.outcome);
    expect_near("entering", found.entering, truth.entering, {1e-6, 2e-6, 2e-6});
    expect_near("final", found.final, truth.final, {1e-6, 2e-6, 2e-6});
  }
}

INSTANTIATE_TEST_SUITE_P(Context, StateFold, ::testing::ValuesIn(configs()), config_name);

/// Ranks that take pieces by turns, and a zigzag of them.
class SimulatedRanks : public ::testing::TestWithParam<ContextConfig> {
 protected:
  /// The pieces of each sequence as chains; every piece's entering state has its own place.
  static std::vector<std::vector<Step>> chains_of(const ContextConfig& c,
                                                  const std::vector<Piece>& pieces) {
    std::vector<std::vector<Step>> chains(c.lengths.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      chains[static_cast<size_t>(pieces[i].sequence)].push_back({at, at});
    }
    return chains;
  }
  /// Rows or pieces of one rank's answer into their places.
  static void scatter(const Array& part, const std::vector<size_t>& owners, Array* whole) {
    const size_t each = owners.empty() ? 0 : part.values.size() / owners.size();
    for (size_t i = 0; i < owners.size(); ++i) {
      std::copy_n(part.values.begin() + static_cast<ptrdiff_t>(i * each), each,
                  whole->values.begin() + static_cast<ptrdiff_t>(owners[i] * each));
    }
  }
};

TEST_P(SimulatedRanks, GiveWhatOneRankGives) {
  ContextConfig c = GetParam();
  for (int64_t& length : c.lengths) length = 4 * length;
  const ContextInputs inputs(c);
  const sluice_implementation implementation = implementations_under_test().front();
  std::vector<Piece> whole;
  int64_t start = 0;
  for (size_t n = 0; n < c.lengths.size(); ++n) {
    whole.push_back({static_cast<int64_t>(n), start, start + c.lengths[n]});
    start += c.lengths[n];
  }
  const Outputs truth = inputs.forward(whole, inputs.initial(), SLUICE_IMPL_REFERENCE);
  const Gradients true_gradients =
      inputs.backward(whole, inputs.initial(), inputs.d_final(), SLUICE_IMPL_REFERENCE);
  expect_done(truth.outcome);
  for (const size_t ranks : {2u, 4u, 8u, 16u}) {
    const int64_t each = std::max<int64_t>(c.tokens() / static_cast<int64_t>(ranks) / 2, 1);
    const std::vector<Piece> pieces = cut(c, {each, each / 2 + 1});
    const auto P = static_cast<int64_t>(pieces.size());
    Maps maps{Array({P, c.HV, c.K, c.K}), Array({P, c.HV, c.K, c.V}), Array({P, c.HV}), {}};
    Maps back = maps;
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::vector<Piece> own;
      std::vector<size_t> owned;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const size_t turn = i % (2 * ranks), owner = turn < ranks ? turn : 2 * ranks - 1 - turn;
        if (owner == rank) own.push_back(pieces[i]), owned.push_back(i);
      }
      if (own.empty()) continue;
      const Maps mine = inputs.summary(own, SLUICE_DIRECTION_FORWARD, implementation);
      const Maps mine_back = inputs.summary(own, SLUICE_DIRECTION_REVERSE, implementation);
      expect_done(mine.outcome);
      expect_done(mine_back.outcome);
      maps.outcome = mine.outcome;
      for (const auto& [from, to] : {std::pair{&mine, &maps}, {&mine_back, &back}}) {
        scatter(from->transition, owned, &to->transition);
        scatter(from->addend, owned, &to->addend);
        scatter(from->forgotten, owned, &to->forgotten);
      }
    }
    const auto chains = chains_of(c, pieces);
    const Folded folded =
        fold(c, maps, chains, inputs.initial(), SLUICE_DIRECTION_FORWARD, implementation);
    const Folded folded_back =
        fold(c, back, chains, inputs.d_final(), SLUICE_DIRECTION_REVERSE, implementation);
    expect_done(folded.outcome);
    expect_done(folded_back.outcome);
    const Tolerance limits = tolerance_of(c, maps.outcome.kernel);
    const Tolerance of_gradients = tolerance_of(c, maps.outcome.kernel, true);
    expect_near(named("final_", ranks), folded.final, truth.final, limits);
    expect_near(named("dinitial_", ranks), folded_back.final, true_gradients.dinitial,
                of_gradients);
    const Outputs found = inputs.forward(pieces, folded.entering, implementation);
    expect_done(found.outcome);
    expect_near(named("o_", ranks), found.o, truth.o, output_tolerance(c, maps.outcome.kernel));
    const Gradients gradients =
        inputs.backward(pieces, folded.entering, folded_back.entering, implementation);
    expect_done(gradients.outcome);
    expect_near(named("dq_", ranks), gradients.dq, true_gradients.dq, of_gradients);
    expect_near(named("dv_", ranks), gradients.dv, true_gradients.dv, of_gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(Context, SimulatedRanks, ::testing::ValuesIn(configs()), config_name);

}  // namespace
}  // namespace sluice::check
