// Tests the reference with key-wise gates [B,T,HV,K]: against a loop written for this test alone,
// equal channels against a scalar gate bit for bit, the chunk form and its stages against the
// recurrence, and chunk_cumsum and chunk_h against their definitions.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "unit/ref_stage_case.hpp"

namespace sluice {
namespace {

/// A case whose gates are key-wise.
struct KeyCase : Case {
  Array key_g;

  KeyCase(sluice_rule which, GateProfile gates, int64_t tokens = 150) {
    T = tokens, rule = which;
    generate(KeyProfile::kCos75, GateProfile::kNone, BetaProfile::kSigmoid);
    key_g = check::make_key_gates(gates, {B, T, HV, K}, 7);
  }
  DeltaRuleProblem key_problem() {
    DeltaRuleProblem p = problem();
    p.key_gate = view_of(key_g);
    return p;
  }
  /// g of all channels.
  void make_equal(const Array& scalar) {
    for (int64_t at = 0; at < key_g.size(); ++at) {
      key_g.values[static_cast<size_t>(at)] = scalar.values[static_cast<size_t>(at / K)];
    }
  }
};

double clamped(double g) { return g < -128.0 ? -128.0 : g; }

/// o and the final state of head h as the formulas have them, without a part of the reference.
void plain_loop(const KeyCase& c, int64_t h, std::vector<double>* o, std::vector<double>* S) {
  const int64_t K = c.K, V = c.V, key_head = h / (c.HV / c.H);
  S->assign(static_cast<size_t>(K * V), 0.0);
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return (*S)[static_cast<size_t>(i * V + j)];
  };
  for (int64_t i = 0; i < K; ++i) {
    for (int64_t j = 0; j < V; ++j) at(i, j) = c.initial(0, h, i, j);
  }
  for (int64_t t = 0; t < c.T; ++t) {
    for (int64_t j = 0; j < V; ++j) {
      double held = 0.0;
      for (int64_t i = 0; i < K; ++i) {
        at(i, j) *= std::exp(clamped(c.key_g(0, t, h, i)));
        held += at(i, j) * c.k(0, t, key_head, i);
      }
      double write = c.v(0, t, h, j), out = 0.0;
      if (c.rule == SLUICE_RULE_GATED_DELTA) write = c.beta(0, t, h) * (write - held);
      for (int64_t i = 0; i < K; ++i) {
        at(i, j) += c.k(0, t, key_head, i) * write;
        out += at(i, j) * c.q(0, t, key_head, i);
      }
      o->push_back(out / std::sqrt(static_cast<double>(K)));
    }
  }
}

using Row = std::tuple<sluice_rule, GateProfile>;
class RefKeyGates : public ::testing::TestWithParam<Row> {};

TEST_P(RefKeyGates, IsThePlainLoop) {
  KeyCase c(std::get<0>(GetParam()), std::get<1>(GetParam()));
  run_recurrent(c.key_problem());
  for (int64_t h = 0; h < c.HV; ++h) {
    std::vector<double> o, S;
    plain_loop(c, h, &o, &S);
    for (int64_t t = 0; t < c.T; ++t) {
      for (int64_t j = 0; j < c.V; ++j) {
        ASSERT_NEAR(c.o(0, t, h, j), o[static_cast<size_t>(t * c.V + j)], 1e-12) << h << " " << t;
      }
    }
    for (int64_t i = 0; i < c.K; ++i) {
      for (int64_t j = 0; j < c.V; ++j) {
        ASSERT_NEAR(c.final(0, h, i, j), S[static_cast<size_t>(i * c.V + j)], 1e-12);
      }
    }
  }
}

TEST_P(RefKeyGates, ChunkFormIsTheRecurrence) {
  KeyCase c(std::get<0>(GetParam()), std::get<1>(GetParam()));
  run_recurrent(c.key_problem());
  const Array o = c.o, final = c.final;
  run_chunked(c.key_problem());
  expect_close(c.o, o, 1e-11);
  expect_close(c.final, final, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RefKeyGates,
    ::testing::Combine(::testing::Values(SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION),
                       ::testing::Values(GateProfile::kSlow, GateProfile::kFlashQla,
                                         GateProfile::kStrong, GateProfile::kResets,
                                         GateProfile::kMinusInfinity)));

TEST(RefKeyGatesAgree, EqualChannelsAreAScalarGate) {
  for (const auto rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    KeyCase c(rule, GateProfile::kStrong, 40);
    c.g = check::make_gates(GateProfile::kMinusInfinity, {c.B, c.T, c.HV}, 9);
    c.make_equal(c.g);
    for (const auto& op :
         {ref::recurrent_backend().chunk_forward, ref::recurrent_backend().recurrent_step}) {
      run(op, c.problem());
      const Array o = c.o, final = c.final;
      DeltaRuleProblem p = c.key_problem();
      p.gate = {};
      run(op, p);
      EXPECT_EQ(c.o.values, o.values);
      EXPECT_EQ(c.final.values, final.values);
    }
  }
}

TEST(RefKeyGatesAgree, LinearGatesAreExponentials) {
  KeyCase c(SLUICE_RULE_GATED_DELTA, GateProfile::kStrong, 20);
  run_recurrent(c.key_problem());
  const Array o = c.o;
  for (double& g : c.key_g.values) g = std::exp(g);
  DeltaRuleProblem p = c.key_problem();
  p.gate_space = SLUICE_GATE_LINEAR;
  run_recurrent(p);
  expect_close(c.o, o, 1e-12);
}

/// Raw and bounded gates are log gates by their definitions; the biases are one a channel, or none.
TEST(RefKeyGatesAgree, RawGatesAreTheirDefinitions) {
  for (const bool bounded : {true, false}) {
    for (const bool biased : {true, false}) {
      KeyCase raw(SLUICE_RULE_GATED_DELTA, GateProfile::kStrong, 20), log = raw;
      const Array bias = check::make_normal({raw.HV, raw.K}, 12);
      const Array A_log = check::make_normal({raw.HV}, 13);
      raw.key_g = check::make_normal(raw.key_g.shape, 11);
      for (int64_t at = 0; at < raw.key_g.size(); ++at) {
        const int64_t i = at % raw.K, h = at / raw.K % raw.HV;
        const double x = raw.key_g.values[static_cast<size_t>(at)] + (biased ? bias(h, i) : 0.0);
        const double rate = std::exp(A_log(h));
        log.key_g.values[static_cast<size_t>(at)] =
            bounded ? -7.5 / (1.0 + std::exp(-rate * x)) : -rate * std::log1p(std::exp(x));
      }
      DeltaRuleProblem p = raw.key_problem();
      p.gate_space = bounded ? SLUICE_GATE_RAW_BOUNDED : SLUICE_GATE_RAW;
      p.gate_lower_bound = bounded ? -7.5 : 0.0;
      p.A_log = view_of(A_log);
      if (biased) p.dt_bias = view_of(bias);
      run_recurrent(p);
      run_recurrent(log.key_problem());
      expect_close(raw.o, log.o, 1e-12);
      run_chunked(p);
      expect_close(raw.o, log.o, 1e-9);
    }
  }
}

// --------------------------------------------------------------------------------- stages ----

/// Stages with key-wise gates on float64 tensors.
struct KeyStages {
  KeyStages(const KeyCase& source, int64_t C)
      : c(source), stages(source, C), sums({c.B, c.T, c.HV, c.K}, std::nan("")) {
    stages.u = check::make_normal(stages.u.shape, 11);
    stages.w = check::make_normal(stages.w.shape, 12);
    for (double& x : stages.w.values) x *= 0.05;
  }
  core::ChunkStageProblem problem(sluice_stage stage, bool summed) const {
    core::ChunkStageProblem p = stages.problem(stage);
    const bool writes = stage == SLUICE_STAGE_CHUNK_CUMSUM || stage == SLUICE_STAGE_CUMSUM_KKT;
    p.gate = writes || !summed ? view_of(c.key_g) : sluice_tensor{};
    p.g_cumsum = writes || summed ? view_of(sums) : sluice_tensor{};
    p.key_gates = true;
    return p;
  }

  KeyCase c;
  StageCase stages;
  Array sums;
};

TEST(RefKeyStages, CumsumIsTheSumsOfChannels) {
  KeyStages s(KeyCase(SLUICE_RULE_GATED_DELTA, GateProfile::kMinusInfinity), 32);
  core::ChunkStageProblem p = s.problem(SLUICE_STAGE_CHUNK_CUMSUM, true);
  for (const auto direction : {SLUICE_DIRECTION_FORWARD, SLUICE_DIRECTION_REVERSE}) {
    p.direction = direction;
    s.stages.run(p);
    for (int64_t t = 0; t < s.c.T; ++t) {
      for (int64_t i = 0; i < s.c.K; ++i) {
        double sum = 0.0;
        for (int64_t x = t / 32 * 32; x < std::min(s.c.T, (t / 32 + 1) * 32); ++x) {
          const bool counts = direction == SLUICE_DIRECTION_FORWARD ? x <= t : x >= t;
          if (counts) sum += clamped(s.c.key_g(0, x, 2, i));
        }
        ASSERT_NEAR(s.sums(0, t, 2, i), sum, 1e-11);
      }
    }
  }
}

/// All stages, and the pairs in their places, are the recurrence.
TEST_P(RefKeyGates, StagesAreTheRecurrence) {
  const auto [rule, gates] = GetParam();
  KeyCase c(rule, gates);
  run_recurrent(c.key_problem());
  const std::vector<sluice_stage> updates[] = {
      {SLUICE_STAGE_SCALED_DOT_KKT, SLUICE_STAGE_SOLVE_TRIL, SLUICE_STAGE_WY_FAST},
      {SLUICE_STAGE_CUMSUM_KKT, SLUICE_STAGE_SOLVE_WY}};
  for (const bool pairs : {false, true}) {
    KeyStages s(c, 32);
    s.stages.run(s.problem(SLUICE_STAGE_CHUNK_CUMSUM, true));
    for (const sluice_stage stage : updates[pairs ? 1 : 0]) {
      if (rule == SLUICE_RULE_GATED_DELTA) s.stages.run(s.problem(stage, !pairs));
    }
    s.stages.run(s.problem(SLUICE_STAGE_CHUNK_H, true));
    expect_close(s.stages.final, c.final, 1e-11);
    s.stages.run(s.problem(SLUICE_STAGE_CHUNK_O, !pairs));
    expect_close(s.stages.o, c.o, 1e-11);
  }
  if (rule == SLUICE_RULE_GATED_DELTA) return;
  KeyStages one(c, 32);
  one.stages.with_h = false;
  one.stages.run(one.problem(SLUICE_STAGE_CHUNK_O, false));
  expect_close(one.stages.o, c.o, 1e-11);
  expect_close(one.stages.final, c.final, 1e-11);
}

/// v_new, h and the final state of chunk_h, with sums and with gates.
TEST(RefKeyStages, ChunkHIsItsDefinition) {
  for (const auto rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    KeyStages s(KeyCase(rule, GateProfile::kStrong, 75), 32);
    s.stages.run(s.problem(SLUICE_STAGE_CHUNK_CUMSUM, true));
    for (const bool summed : {true, false}) {
      s.stages.run(s.problem(SLUICE_STAGE_CHUNK_H, summed));
      const int64_t h = 3, K = s.c.K, V = s.c.V;
      const bool delta = rule == SLUICE_RULE_GATED_DELTA;
      Array S({K, V});
      for (int64_t i = 0; i < K; ++i) {
        for (int64_t j = 0; j < V; ++j) S(i, j) = s.c.initial(0, h, i, j);
      }
      for (int64_t t = 0; t < s.c.T; ++t) {
        if (t % 32 == 0) {
          for (int64_t i = 0; i < K; ++i)
            ASSERT_NEAR(s.stages.h(0, t / 32, h, i, 2), S(i, 2), 1e-11);
        }
        for (int64_t j = 0; j < V; ++j) {
          double value = delta ? s.stages.u(0, t, h, j) : s.c.v(0, t, h, j);
          for (int64_t i = 0; delta && i < K; ++i) {
            value -= s.stages.w(0, t, h, i) * s.stages.h(0, t / 32, h, i, j);
          }
          if (delta) {
            ASSERT_NEAR(s.stages.v_new(0, t, h, j), value, 1e-11);
          }
          for (int64_t i = 0; i < K; ++i) {
            S(i, j) = S(i, j) * std::exp(s.c.key_g(0, t, h, i)) + s.c.k(0, t, 1, i) * value;
          }
        }
      }
      for (int64_t i = 0; i < K; ++i) {
        for (int64_t j = 0; j < V; ++j) ASSERT_NEAR(s.stages.final(0, h, i, j), S(i, j), 1e-11);
      }
    }
  }
}

TEST(RefKeyStages, EqualChannelsAreAScalarGate) {
  KeyCase c(SLUICE_RULE_GATED_DELTA, GateProfile::kStrong);
  c.g = check::make_gates(GateProfile::kFlashQla, {c.B, c.T, c.HV}, 9);
  c.make_equal(c.g);
  KeyStages s(c, 64);
  s.stages.cumulated_gates = false;
  s.stages.run(SLUICE_STAGE_CHUNK_H);
  const Array h = s.stages.h, final = s.stages.final;
  s.stages.run(s.problem(SLUICE_STAGE_CHUNK_H, false));
  EXPECT_EQ(s.stages.h.values, h.values);
  EXPECT_EQ(s.stages.final.values, final.values);
}

}  // namespace
}  // namespace sluice
