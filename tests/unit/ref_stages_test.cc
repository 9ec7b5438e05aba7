// Tests the float64 stages of the chunk form: each against its definition, all of them in a row
// against the recurrence to 1e-11, for every chunk size, gate form and packing. Problems are
// float64 views handed to the backend table, so that nothing is rounded on the way.
// SPDX-License-Identifier: Apache-2.0
#include "unit/ref_stage_case.hpp"

namespace sluice {
namespace {

Case make_case(sluice_rule rule, KeyProfile keys, GateProfile gates, int64_t T = 150) {
  Case c;
  c.T = T, c.rule = rule;
  c.generate(keys, gates, BetaProfile::kSigmoid);
  return c;
}

// -------------------------------------------------------------------------- the whole chain ----

using ChainRow = std::tuple<sluice_rule, GateProfile, int64_t>;
class StageChain : public ::testing::TestWithParam<ChainRow> {};

TEST_P(StageChain, IsTheRecurrence) {
  const auto [rule, gates, C] = GetParam();
  Case truth = make_case(rule, KeyProfile::kCos75, gates);
  for (const bool cumulated : {true, false}) {
    StageCase stages(truth, C);
    // An absent gate has no sums: the later stages are told so by neither view.
    stages.cumulated_gates = cumulated && gates != GateProfile::kNone;
    stages.run_chain();
    run_recurrent(truth.problem());
    // NUM: sums of gates of -128 have an ulp of 2e-12 in double, and exp keeps it.
    expect_close(stages.o, truth.o, 1e-11);
    expect_close(stages.final, truth.final, 1e-11);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, StageChain,
    ::testing::Combine(::testing::Values(SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION),
                       ::testing::Values(GateProfile::kNone, GateProfile::kSlow,
                                         GateProfile::kStrong, GateProfile::kResets,
                                         GateProfile::kMinusInfinity, GateProfile::kMixed),
                       ::testing::Values(16, 32, 64, 128)));

TEST(StagePacking, PackedIsEachSequenceAlone) {
  for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    const std::vector<int64_t> cu = {0, 1, 1, 66, 130, 147};  // three rows past the end
    Case source = make_case(rule, KeyProfile::kSiluLike, GateProfile::kFlashQla);
    source.initial = check::make_normal({5, source.HV, source.K, source.V}, 9);
    StageCase packed(source, 64, cu);
    packed.run_chain();
    EXPECT_TRUE(std::isnan(packed.o(0, 147, 0, 0)));
    int64_t entry = 0;
    for (size_t n = 0; n + 1 < cu.size(); ++n) {
      Case one = source;
      one.T = cu[n + 1] - cu[n];
      const auto cut = [&](const Array& whole) {
        Array part = whole;
        part.shape[1] = one.T;
        const auto row = whole.values.begin();
        const int64_t size = whole.size() / whole.shape[1];
        part.values.assign(row + cu[n] * size, row + cu[n + 1] * size);
        return part;
      };
      one.q = cut(source.q), one.k = cut(source.k), one.v = cut(source.v);
      one.g = cut(source.g), one.beta = cut(source.beta);
      const int64_t states = source.HV * source.K * source.V;
      const auto slot = source.initial.values.begin() + static_cast<int64_t>(n) * states;
      one.initial = Array({1, source.HV, source.K, source.V});
      one.initial.values.assign(slot, slot + states);
      StageCase alone(one, 64);
      alone.run_chain();
      EXPECT_EQ(cut(packed.o).values, alone.o.values) << n;
      for (int64_t i = 0; i < states; ++i) {
        const int64_t at = static_cast<int64_t>(n) * states + i;
        EXPECT_EQ(packed.final.values[static_cast<size_t>(at)],
                  alone.final.values[static_cast<size_t>(i)]);
      }
      for (int64_t c = 0; c < alone.chunks(); ++c, ++entry) {
        EXPECT_EQ(packed.h(0, entry, 1, 2, 3), alone.h(0, c, 1, 2, 3));
      }
    }
    EXPECT_EQ(entry, packed.chunks());
  }
}

// -------------------------------------------------------------------------- stage by stage ----

TEST(StageCumsum, SumsInsideChunksBothWays) {
  StageCase c(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kSiluLike, GateProfile::kStrong), 32);
  c.run(SLUICE_STAGE_CHUNK_CUMSUM);
  const Array forward = c.g_cumsum;
  core::ChunkStageProblem p = c.problem(SLUICE_STAGE_CHUNK_CUMSUM);
  p.direction = SLUICE_DIRECTION_REVERSE;
  c.run(p);
  for (int64_t t = 0; t < c.in.T; ++t) {
    double before = 0, after = 0;
    for (int64_t s = t / 32 * 32; s < std::min(c.in.T, (t / 32 + 1) * 32); ++s) {
      (s <= t ? before : after) += c.in.g(0, s, 1);
    }
    EXPECT_NEAR(forward(0, t, 1), before, 1e-13);
    EXPECT_NEAR(c.g_cumsum(0, t, 1), after + c.in.g(0, t, 1), 1e-13);
  }
}

TEST(StageKkt, IsItsDefinition) {
  StageCase c(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kCos75, GateProfile::kStrong), 64);
  c.run(SLUICE_STAGE_CHUNK_CUMSUM);
  c.run(SLUICE_STAGE_SCALED_DOT_KKT);
  for (int64_t t = 0; t < c.in.T; ++t) {
    for (int64_t column = 0; column < 64; ++column) {
      const int64_t s = t / 64 * 64 + column;
      double expected = 0;
      for (int64_t i = 0; s < t && i < c.in.K; ++i)
        expected += c.in.k(0, t, 1, i) * c.in.k(0, s, 1, i);
      if (s < t) {
        double g = 0;
        for (int64_t x = s + 1; x <= t; ++x) g += c.in.g(0, x, 3);
        expected *= c.in.beta(0, t, 3) * std::exp(g);
      }
      EXPECT_NEAR(c.A(0, t, 3, column), expected, 1e-12);
    }
  }
}

TEST(StageSolve, InvertsBothTriangles) {
  for (const int64_t C : {16, 32, 64, 128}) {
    for (const sluice_triangle triangle : {SLUICE_TRIANGLE_LOWER, SLUICE_TRIANGLE_UPPER}) {
      const int64_t T = C + C / 2 + 3;  // the second chunk is short
      StageCase c(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kSiluLike, GateProfile::kNone, T),
                  C);
      check::Random random(static_cast<uint64_t>(C));
      for (double& x : c.A.values) x = random.normal() * 0.2;
      core::ChunkStageProblem p = c.problem(SLUICE_STAGE_SOLVE_TRIL);
      p.triangle = triangle;
      c.run(p);
      const bool upper = triangle == SLUICE_TRIANGLE_UPPER;
      for (int64_t t = 0; t < T; ++t) {
        const int64_t first = t / C * C, n = std::min(C, T - first), i = t - first;
        for (int64_t j = 0; j < C; ++j) {
          const double x = c.A_inverse(0, t, 2, j);
          if (j >= n || (upper ? j < i : j > i)) {
            EXPECT_EQ(x, 0.0);
            continue;
          }
          double product = x;  // row i of I + A times column j of the inverse
          for (int64_t l = upper ? i + 1 : 0; l < (upper ? n : i); ++l) {
            product += c.A(0, t, 2, l) * c.A_inverse(0, first + l, 2, j);
          }
          EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-9);
        }
      }
    }
  }
}

TEST(StageSolve, TriangleOfOnesIsExact) {
  StageCase c(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kSiluLike, GateProfile::kNone, 128),
              128);
  for (double& x : c.A.values) x = 1.0;
  c.run(SLUICE_STAGE_SOLVE_TRIL);
  for (int64_t i = 0; i < 128; ++i) {
    for (int64_t j = 0; j < 128; ++j) {
      EXPECT_EQ(c.A_inverse(0, i, 0, j), i == j ? 1.0 : i == j + 1 ? -1.0 : 0.0);
    }
  }
}

TEST(StageWy, AppliesTheInverseToValuesAndGatedKeys) {
  StageCase c(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kCos75, GateProfile::kFlashQla), 64);
  c.run(SLUICE_STAGE_CHUNK_CUMSUM);
  c.run(SLUICE_STAGE_SCALED_DOT_KKT);
  c.run(SLUICE_STAGE_SOLVE_TRIL);
  c.run(SLUICE_STAGE_WY_FAST);
  // (I + A) u = diag(beta) v and (I + A) w = diag(beta exp G) k: no inverse in the check.
  const int64_t h = 2;
  for (int64_t t = 0; t < c.in.T; ++t) {
    const int64_t first = t / 64 * 64;
    for (int64_t i = 0; i < c.in.K; ++i) {
      double u = i < c.in.V ? c.u(0, t, h, i) : 0.0, w = c.w(0, t, h, i);
      for (int64_t s = first; s < t; ++s) {
        if (i < c.in.V) u += c.A(0, t, h, s - first) * c.u(0, s, h, i);
        w += c.A(0, t, h, s - first) * c.w(0, s, h, i);
      }
      const double beta = c.in.beta(0, t, h);
      EXPECT_NEAR(u, i < c.in.V ? beta * c.in.v(0, t, h, i) : 0.0, 1e-12);
      EXPECT_NEAR(w, beta * std::exp(c.g_cumsum(0, t, h)) * c.in.k(0, t, 1, i), 1e-12);
    }
  }
}

TEST(StagePairs, AreTheirTwoStages) {
  for (const int64_t C : {16, 64, 128}) {
    StageCase two(make_case(SLUICE_RULE_GATED_DELTA, KeyProfile::kCos75, GateProfile::kMixed), C);
    StageCase one = two;
    for (const sluice_stage stage : {SLUICE_STAGE_CHUNK_CUMSUM, SLUICE_STAGE_SCALED_DOT_KKT,
                                     SLUICE_STAGE_SOLVE_TRIL, SLUICE_STAGE_WY_FAST}) {
      two.run(stage);
    }
    one.run(SLUICE_STAGE_CUMSUM_KKT);
    EXPECT_EQ(one.g_cumsum.values, two.g_cumsum.values);
    EXPECT_EQ(one.A.values, two.A.values);
    for (const bool inverse : {true, false}) {
      core::ChunkStageProblem p = one.problem(SLUICE_STAGE_SOLVE_WY);
      p.triangle = SLUICE_TRIANGLE_UPPER;  // that is solve_tril's alone
      if (!inverse) p.A_inverse = {};
      one.u = Array(two.u.shape, std::nan("")), one.w = Array(two.w.shape, std::nan(""));
      p.u = view_of(one.u), p.w = view_of(one.w);
      one.run(p);
      EXPECT_EQ(one.u.values, two.u.values);
      EXPECT_EQ(one.w.values, two.w.values);
    }
    EXPECT_EQ(one.A_inverse.values, two.A_inverse.values);
  }
}

TEST(StageStates, EnterTheirChunks) {
  for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    const Case source = make_case(rule, KeyProfile::kSiluLike, GateProfile::kFlashQla);
    StageCase c(source, 32);
    c.run_chain();
    for (int64_t entry = 0; entry < c.chunks(); ++entry) {
      Case prefix = source;
      prefix.T = entry * 32;
      prefix.final = source.initial;
      DeltaRuleProblem p = prefix.problem();
      p.rows.T = p.rows.max_tokens = prefix.T;
      if (prefix.T > 0) run_recurrent(p);
      for (int64_t i = 0; i < source.K; ++i) {
        EXPECT_NEAR(c.h(0, entry, 3, i, 5), prefix.final(0, 3, i, 5), 1e-11);
      }
    }
  }
}

// ------------------------------------------------------------------------------- simple GLA ----

TEST(SimpleGla, WithAndWithoutSuppliedStates) {
  for (const GateProfile gates : {GateProfile::kNone, GateProfile::kStrong}) {
    StageCase supplied(make_case(SLUICE_RULE_LINEAR_ATTENTION, KeyProfile::kSiluLike, gates), 64);
    supplied.cumulated_gates = false;
    StageCase alone = supplied;
    alone.with_h = false;
    supplied.run_chain();
    alone.run_chain();
    EXPECT_EQ(supplied.o.values, alone.o.values);
    EXPECT_EQ(supplied.final.values, alone.final.values);
  }
}

TEST(SimpleGla, AbsentGateIsZeroGateBitForBit) {
  StageCase zero(make_case(SLUICE_RULE_LINEAR_ATTENTION, KeyProfile::kCos75, GateProfile::kZero),
                 64);
  StageCase none = zero;
  none.in.g = {};
  none.cumulated_gates = false;
  zero.run_chain();
  none.run_chain();
  EXPECT_EQ(zero.o.values, none.o.values);
  EXPECT_EQ(zero.final.values, none.final.values);
}

TEST(SimpleGla, GrowthIsNotClamped) {
  Case source =
      make_case(SLUICE_RULE_LINEAR_ATTENTION, KeyProfile::kSiluLike, GateProfile::kStrong);
  for (double& g : source.g.values) g = -0.1 * g;
  StageCase stages(source, 64);
  stages.run_chain();
  run_recurrent(source.problem());
  expect_close(stages.o, source.o, 1e-11);
  expect_close(stages.final, source.final, 1e-11);
}

}  // namespace
}  // namespace sluice
