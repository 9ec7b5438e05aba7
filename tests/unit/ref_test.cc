// Tests the executable specification: both forms of the delta rule agree to 1e-11 in float64 on
// every input profile, and the options mean what sluice.h says. Problems are float64 views handed
// to the backend tables directly, so that nothing is rounded on the way; small cases have answers
// by hand.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "unit/ref_case.hpp"

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ------------------------------------------------------------------------------- both forms ----

using Profiles = std::tuple<KeyProfile, GateProfile, BetaProfile>;
class BothForms : public ::testing::TestWithParam<Profiles> {};

TEST_P(BothForms, AgreeTo1e11) {
  const auto [keys, gates, betas] = GetParam();
  for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    Case recurrent;
    recurrent.rule = rule;
    recurrent.generate(keys, gates, betas);
    Case chunked = recurrent;
    run_recurrent(recurrent.problem());
    run_chunked(chunked.problem());
    expect_close(chunked.o, recurrent.o, 1e-11);
    expect_close(chunked.final, recurrent.final, 1e-11);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Profiles, BothForms,
    ::testing::Combine(::testing::Values(KeyProfile::kRandomUnit, KeyProfile::kSiluLike,
                                         KeyProfile::kCos75, KeyProfile::kCos90,
                                         KeyProfile::kIdentical, KeyProfile::kZero,
                                         KeyProfile::kAntiParallel),
                       ::testing::Values(GateProfile::kNone, GateProfile::kZero, GateProfile::kSlow,
                                         GateProfile::kFlashQla, GateProfile::kStrong,
                                         GateProfile::kModelLike, GateProfile::kResets,
                                         GateProfile::kMinusInfinity, GateProfile::kHalfZeros,
                                         GateProfile::kMixed),
                       ::testing::Values(BetaProfile::kAbsent, BetaProfile::kZero,
                                         BetaProfile::kTwo, BetaProfile::kSigmoid)));

TEST(BothFormsLengths, AgreeAtEveryTail) {
  for (const int64_t T : {1, 2, 63, 64, 65, 127, 128, 129}) {
    Case recurrent;
    recurrent.T = T;
    recurrent.generate(KeyProfile::kSiluLike, GateProfile::kStrong, BetaProfile::kSigmoid);
    Case chunked = recurrent;
    run_recurrent(recurrent.problem());
    run_chunked(chunked.problem());
    expect_close(chunked.o, recurrent.o, 1e-12);
    expect_close(chunked.final, recurrent.final, 1e-12);
  }
}

// --------------------------------------------------------------------------------- by hand ----

// K = V = 1: S and o are numbers. Decay comes before the error, o is read after the write.
TEST(RefRecurrence, OneByOneByHand) {
  Case c;
  c.T = 2, c.H = 1, c.HV = 1, c.K = 1, c.V = 1;
  c.generate(KeyProfile::kRandomUnit, GateProfile::kZero, BetaProfile::kOne);
  c.q.values = {2.0, 3.0};
  c.k.values = {0.5, -1.0};
  c.v.values = {4.0, 1.0};
  c.g.values = {std::log(0.5), std::log(0.25)};
  c.beta.values = {0.5, 2.0};
  c.initial.values = {8.0};
  run_recurrent(c.problem());
  // S: 8 -> 4, error .5 (4 - 2) = 1, S = 4.5; 4.5 -> 1.125, error 2 (1 + 1.125) = 4.25,
  // S = 1.125 - 4.25.
  EXPECT_DOUBLE_EQ(c.o.values[0], 2.0 * 4.5);
  EXPECT_DOUBLE_EQ(c.o.values[1], 3.0 * -3.125);
  EXPECT_DOUBLE_EQ(c.final.values[0], -3.125);
}

TEST(RefRecurrence, UnitKeyWithBetaOneStoresItsValue) {
  Case c;
  c.T = 5;
  c.generate(KeyProfile::kIdentical, GateProfile::kStrong, BetaProfile::kOne);
  c.q = c.k;
  DeltaRuleProblem p = c.problem();
  p.scale = 1.0;
  run_recurrent(p);
  for (size_t i = 0; i < c.o.values.size(); ++i) {
    EXPECT_NEAR(c.o.values[i], c.v.values[i], 1e-13);
  }
}

// ------------------------------------------------------------------------- gates and betas ----

TEST(RefGates, AbsentGateIsZeroGateExactly) {
  for (const auto execute : {run_recurrent, run_chunked}) {
    Case with, without;
    with.generate(KeyProfile::kSiluLike, GateProfile::kZero, BetaProfile::kOne);
    without.generate(KeyProfile::kSiluLike, GateProfile::kNone, BetaProfile::kAbsent);
    execute(with.problem());
    execute(without.problem());
    EXPECT_EQ(with.o.values, without.o.values);
    EXPECT_EQ(with.final.values, without.final.values);
  }
}

TEST(RefGates, LinearAndRawGatesAreTheLogGate) {
  Case log;
  log.generate(KeyProfile::kSiluLike, GateProfile::kStrong, BetaProfile::kSigmoid);
  Case linear = log, raw = log;
  run_recurrent(log.problem());

  for (double& g : linear.g.values) g = std::exp(g);
  DeltaRuleProblem p = linear.problem();
  p.gate_space = SLUICE_GATE_LINEAR;
  run_recurrent(p);
  expect_close(linear.o, log.o, 1e-13);

  Array A_log({raw.HV}), dt_bias({raw.HV});
  for (size_t h = 0; h < A_log.values.size(); ++h) {
    A_log.values[h] = 0.3 * static_cast<double>(h);
    dt_bias.values[h] = 1.0 - 0.5 * static_cast<double>(h);
  }
  for (size_t i = 0; i < raw.g.values.size(); ++i) {
    const size_t h = i % A_log.values.size();
    const double softplus = -raw.g.values[i] / std::exp(A_log.values[h]);
    raw.g.values[i] = std::log(std::expm1(softplus)) - dt_bias.values[h];
  }
  p = raw.problem();
  p.gate_space = SLUICE_GATE_RAW;
  p.A_log = view_of(A_log), p.dt_bias = view_of(dt_bias);
  run_recurrent(p);
  expect_close(raw.o, log.o, 1e-12);
}

TEST(RefGates, BoundedIsTheBoundTimesASigmoid) {
  Case bounded, log;
  log.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  bounded.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  Array A_log({log.HV}, 0.3), dt_bias({log.HV}, -0.2);
  for (const bool parameters : {true, false}) {
    for (size_t i = 0; i < log.g.values.size(); ++i) {
      const double a = std::sin(static_cast<double>(i));
      bounded.g.values[i] = a;
      log.g.values[i] = -2.5 / (1.0 + std::exp(parameters ? -std::exp(0.3) * (a - 0.2) : -a));
    }
    DeltaRuleProblem p = bounded.problem();
    p.gate_space = SLUICE_GATE_RAW_BOUNDED, p.gate_lower_bound = -2.5;
    if (parameters) p.A_log = view_of(A_log), p.dt_bias = view_of(dt_bias);
    run_recurrent(log.problem());
    run_recurrent(p);
    expect_close(bounded.o, log.o, 1e-12);
  }
}

TEST(RefGates, MinusInfinityCountsAsMinus128) {
  for (const auto execute : {run_recurrent, run_chunked}) {
    Case infinite;
    infinite.generate(KeyProfile::kSiluLike, GateProfile::kMinusInfinity, BetaProfile::kSigmoid);
    Case clamped = infinite;
    for (double& g : clamped.g.values) g = std::max(g, -128.0);
    execute(infinite.problem());
    execute(clamped.problem());
    EXPECT_EQ(infinite.o.values, clamped.o.values);
    EXPECT_EQ(infinite.final.values, clamped.final.values);
  }
}

TEST(RefGates, AbsentBetaWithNegativeEigenvaluesIsTwo) {
  Case two, absent;
  two.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kTwo);
  absent.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kAbsent);
  run_recurrent(two.problem());
  DeltaRuleProblem p = absent.problem();
  p.beta_factor = 2.0;
  run_recurrent(p);
  EXPECT_EQ(absent.o.values, two.o.values);
}

TEST(RefGates, LogitsAndNegativeEigenvalues) {
  Case value;
  value.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  Case logit = value;
  for (double& b : logit.beta.values) b = std::log(b / (1.0 - b));
  for (double& b : value.beta.values) b *= 2.0;
  run_recurrent(value.problem());
  DeltaRuleProblem p = logit.problem();
  p.beta_space = SLUICE_BETA_LOGIT;
  p.beta_factor = 2.0;
  run_recurrent(p);
  expect_close(logit.o, value.o, 1e-12);
}

// ---------------------------------------------------------------------- norms, heads, scale ----

TEST(RefInputs, L2NormInsideIsL2NormBefore) {
  Case before;
  before.generate(KeyProfile::kSiluLike, GateProfile::kSlow, BetaProfile::kSigmoid);
  Case inside = before;
  for (double& x : inside.q.values) x *= 3.0;
  for (double& x : inside.k.values) x *= 0.5;
  const double eps = 1e-6;  // rows of length 1 scaled by 3 and .5
  for (double& x : before.q.values) x *= 3.0 / std::sqrt(9.0 + eps);
  for (double& x : before.k.values) x *= 0.5 / std::sqrt(0.25 + eps);
  run_recurrent(before.problem());
  DeltaRuleProblem p = inside.problem();
  p.qk_norm = SLUICE_QK_NORM_L2;
  run_recurrent(p);
  expect_close(inside.o, before.o, 1e-12);
}

TEST(RefInputs, HeadMapsChooseTheKeyHead) {
  Case grouped;
  grouped.generate(KeyProfile::kSiluLike, GateProfile::kMixed, BetaProfile::kSigmoid);
  for (const auto map : {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC}) {
    Case map_case = grouped, repeated = grouped;
    DeltaRuleProblem p = map_case.problem();
    p.head_map = map;
    run_recurrent(p);

    repeated.H = repeated.HV;
    repeated.q = Array({1, repeated.T, repeated.HV, repeated.K});
    repeated.k = repeated.q;
    for (int64_t t = 0; t < repeated.T; ++t) {
      for (int64_t h = 0; h < repeated.HV; ++h) {
        const int64_t key_head = map == SLUICE_HEAD_MAP_BLOCK ? h / 2 : h % 2;
        for (int64_t i = 0; i < repeated.K; ++i) {
          repeated.q(0, t, h, i) = grouped.q(0, t, key_head, i);
          repeated.k(0, t, h, i) = grouped.k(0, t, key_head, i);
        }
      }
    }
    run_recurrent(repeated.problem());
    EXPECT_EQ(map_case.o.values, repeated.o.values);
  }
}

// -------------------------------------------------------------------------------- the stages ----

// Just above a bfloat16 midpoint; by way of float it would be the midpoint, then round down.
TEST(RefStores, RoundOnce) {
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  const check::TestTensor tensor(check::kBF16, {1});
  ref::store(tensor.view(), value, 0);
  EXPECT_EQ(ref::load(tensor.view(), 0), 1.0 + 0x1p-7);
  EXPECT_EQ(ref::round_to(check::kBF16, value), 1.0 + 0x1p-7);
}

TEST(ChunkStages, SolveTrilInverts) {
  constexpr int64_t kSize = 9;
  Array A({kSize, kSize}), Tmat = A, beta = check::make_normal({kSize}, 1);
  check::Random random(2);
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < i; ++j) A(i, j) = random.normal();
  }
  const auto matrix = [](Array& a) { return ref::Matrix{a.values.data(), kSize, kSize}; };
  ref::solve_tril(matrix(A), {beta.values.data(), kSize}, matrix(Tmat));
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      double product = Tmat(i, j);
      for (int64_t l = 0; l < i; ++l) product += A(i, l) * Tmat(l, j);
      EXPECT_NEAR(product, i == j ? beta(i) : 0.0, 1e-12);
    }
  }
}

TEST(ChunkStages, DecaysTakeOnlyDifferences) {
  Array g({3}), G({3}), A({3, 3}), ones({3}, 1.0);
  g.values = {-1.0, -1000.0, -0.5};
  const auto column = [](Array& a) { return ref::Matrix{a.values.data(), 3, 1}; };
  ref::chunk_cumsum(column(g), column(G));
  EXPECT_EQ(G.values, (std::vector<double>{-1.0, -1001.0, -1001.5}));
  const auto gamma = [&](int64_t i, int64_t j) {
    const ref::Vector one = column(ones).row(0);
    return ref::decayed_dot(one, one, column(G).row(i), column(G).row(j));
  };
  EXPECT_EQ(gamma(0, 0), 1.0);
  EXPECT_EQ(gamma(1, 0), 0.0);
  EXPECT_DOUBLE_EQ(gamma(2, 1), std::exp(-0.5));
  ref::scaled_dot_kkt({ones.values.data(), 3}, column(G), column(ones), {A.values.data(), 3, 3});
  EXPECT_DOUBLE_EQ(A(2, 1), std::exp(-0.5));
  EXPECT_EQ(A(0, 2), 0.0);
}

TEST(RefGates, PositiveInfinityIsNotClampedAway) {
  Case c;
  c.T = 2;
  c.generate(KeyProfile::kSiluLike, GateProfile::kZero, BetaProfile::kSigmoid);
  c.g(0, 1, 1) = std::nan("");
  c.g(0, 1, 2) = kInfinity;
  run_recurrent(c.problem());
  EXPECT_TRUE(std::isnan(c.o(0, 1, 1, 0)));
  EXPECT_FALSE(std::isfinite(c.o(0, 1, 2, 0)));
  EXPECT_TRUE(std::isfinite(c.o(0, 1, 3, 0)));
}

}  // namespace
}  // namespace sluice
