// Tests the gradients of the reference against central differences of its own forward pass, in
// float64: along random directions of every input, and by single elements. The two share no
// formula.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "unit/ref_case.hpp"

namespace sluice {
namespace {

using check::make_normal;
using core::ChunkBackwardProblem;

/// A forward case, a loss <o, d_o> + <final, d_final>, and the gradients of that loss.
struct GradientCase : Case {
  Array A_log, dt_bias, d_o, d_final;
  Array dq, dk, dv, dg, dbeta, dA_log, ddt_bias, dinitial;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  double beta_factor = 1;
  bool final_counts = true, key_wise = false;  ///< key-wise: g, dg [B,T,HV,K], dt_bias [HV,K]

  void generate_all(GateProfile gates, uint64_t seed) {
    generate(KeyProfile::kSiluLike, gates, BetaProfile::kSigmoid);
    d_o = make_normal({B, T, HV, V}, seed + 10);
    d_final = make_normal({B, HV, K, V}, seed + 11);
    dq = Array(q.shape, std::nan("")), dk = dq, dv = Array(v.shape, std::nan(""));
    dg = Array(g.shape, std::nan("")), dbeta = Array(beta.shape, std::nan(""));
    dinitial = Array(initial.shape, std::nan(""));
  }
  void make_raw() {
    gate_space = SLUICE_GATE_RAW;
    A_log = make_normal({HV}, 20), dt_bias = make_normal({HV}, 21);
    g = make_normal(g.shape, 22);
    if (key_wise) dt_bias = make_normal({HV, K}, 21);
    dA_log = Array({HV}, std::nan("")), ddt_bias = Array(dt_bias.shape, std::nan(""));
  }
  void make_key_wise(GateProfile gates) {
    key_wise = true;
    g = check::make_key_gates(gates, {B, T, HV, K}, 23);
    dg = Array(g.shape, std::nan(""));
  }

  DeltaRuleProblem forward() {
    DeltaRuleProblem p = problem();
    p.gate_space = gate_space, p.beta_space = beta_space, p.qk_norm = qk_norm;
    p.head_map = head_map, p.beta_factor = beta_factor;
    if (gate_space == SLUICE_GATE_RAW_BOUNDED) p.gate_lower_bound = -3.0;
    p.A_log = view_of(A_log), p.dt_bias = view_of(dt_bias);
    if (key_wise) p.gate = {}, p.key_gate = view_of(g);
    return p;
  }
  double loss() {
    run_recurrent(forward());
    double sum = 0;
    for (size_t i = 0; i < o.values.size(); ++i) sum += o.values[i] * d_o.values[i];
    for (size_t i = 0; i < final.values.size() && final_counts; ++i) {
      sum += final.values[i] * d_final.values[i];
    }
    return sum;
  }
  void gradients() {
    ChunkBackwardProblem p;
    p.forward = forward();
    p.forward.op = SLUICE_OP_CHUNK_BACKWARD;
    p.forward.o = {}, p.forward.state.final = {};
    p.d_o = view_of(d_o);
    if (final_counts) p.d_final = view_of(d_final);
    p.dq = view_of(dq), p.dk = view_of(dk), p.dv = view_of(dv);
    p.dgate = key_wise ? view_of(dg) : split(dg), p.dbeta = split(dbeta);
    p.dA_log = view_of(dA_log), p.ddt_bias = view_of(ddt_bias), p.dinitial = view_of(dinitial);
    const auto& op = ref::recurrent_backend().chunk_backward;
    core::Plan plan;
    ASSERT_TRUE(op.plan(p, core::PlanFor::kCall, &plan).ok());
    const check::TestWorkspace workspace(plan.workspace_bytes);
    ASSERT_TRUE(op.run(p, plan, workspace.get(), nullptr).ok());
    EXPECT_TRUE(workspace.guards_intact());
  }

  /// (loss(x + h d) - loss(x - h d)) / 2h.
  double slope(Array& x, const Array& direction, double h) {
    const Array kept = x;
    const auto at = [&](double step) {
      for (size_t i = 0; i < kept.values.size(); ++i) {
        x.values[i] = kept.values[i] + step * direction.values[i];
      }
      return loss();
    };
    const double up = at(h), down = at(-h);
    x = kept;
    return (up - down) / (2 * h);
  }

  void expect_gradient(const char* name, Array& x, const Array& gradient) {
    SCOPED_TRACE(name);
    if (x.empty()) return;
    for (uint64_t seed = 30; seed < 33; ++seed) {
      const Array direction = make_normal(x.shape, seed);
      double along = 0, size = 0;
      for (size_t i = 0; i < x.values.size(); ++i) {
        along += gradient.values[i] * direction.values[i];
        size += gradient.values[i] * gradient.values[i];
      }
      EXPECT_NEAR(slope(x, direction, 1e-5), along, 1e-7 * std::sqrt(size));
    }
    for (const size_t i : {size_t{0}, x.values.size() / 2, x.values.size() - 1}) {
      Array one(x.shape);
      one.values[i] = 1;
      EXPECT_NEAR(slope(x, one, 1e-5), gradient.values[i],
                  1e-7 * (1 + std::abs(gradient.values[i])));
    }
  }
  void expect_gradients() {
    gradients();
    expect_gradient("q", q, dq);
    expect_gradient("k", k, dk);
    expect_gradient("v", v, dv);
    expect_gradient("gate", g, dg);
    expect_gradient("beta", beta, dbeta);
    expect_gradient("A_log", A_log, dA_log);
    expect_gradient("dt_bias", dt_bias, ddt_bias);
    expect_gradient("initial", initial, dinitial);
  }
};

GradientCase small_case(GateProfile gates) {
  GradientCase c;
  c.T = 21, c.K = 6, c.V = 5;
  c.generate_all(gates, 1);
  return c;
}

TEST(RefBackward, IsTheSlopeOfTheForwardPass) {
  for (const GateProfile gates : {GateProfile::kSlow, GateProfile::kStrong}) {
    small_case(gates).expect_gradients();
  }
}

TEST(RefBackward, LinearAttention) {
  GradientCase c = small_case(GateProfile::kStrong);
  c.rule = SLUICE_RULE_LINEAR_ATTENTION;
  c.beta = {}, c.dbeta = {};
  c.expect_gradients();
}

TEST(RefBackward, LogitsNormsAndDoubledStrengths) {
  GradientCase c = small_case(GateProfile::kStrong);
  c.beta_space = SLUICE_BETA_LOGIT, c.beta_factor = 2;
  c.qk_norm = SLUICE_QK_NORM_L2;
  c.head_map = SLUICE_HEAD_MAP_CYCLIC;
  c.beta = make_normal(c.beta.shape, 9);
  c.expect_gradients();
}

TEST(RefBackward, RawGatesSumTheirParameters) {
  GradientCase c = small_case(GateProfile::kStrong);
  c.make_raw();
  c.expect_gradients();
}

TEST(RefBackward, BoundedGatesWithAndWithoutTheirParameters) {
  GradientCase c = small_case(GateProfile::kStrong);
  c.make_raw();
  c.gate_space = SLUICE_GATE_RAW_BOUNDED;
  c.expect_gradients();
  c.A_log = c.dA_log = {};
  c.expect_gradients();
  c.dt_bias = c.ddt_bias = {};
  c.expect_gradients();
}

TEST(RefBackward, KeyWiseGatesInEverySpace) {
  for (const auto rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    GradientCase c = small_case(GateProfile::kNone);
    c.rule = rule;
    if (rule == SLUICE_RULE_LINEAR_ATTENTION) c.beta = {}, c.dbeta = {};
    c.make_key_wise(GateProfile::kStrong);
    c.expect_gradients();
    c.gate_space = SLUICE_GATE_LINEAR;
    for (double& g : c.g.values) g = std::exp(g);
    c.expect_gradients();
    c.make_raw();
    c.expect_gradients();
    c.dt_bias = c.ddt_bias = {};
    c.expect_gradients();
    c.gate_space = SLUICE_GATE_RAW_BOUNDED, c.A_log = c.dA_log = {};
    c.expect_gradients();
  }
}

TEST(RefBackward, ChannelsThatAreClampedHaveNoGradient) {
  GradientCase c = small_case(GateProfile::kNone);
  c.make_key_wise(GateProfile::kSlow);
  c.g(0, 7, 1, 2) = -HUGE_VAL;
  c.gradients();
  EXPECT_EQ(c.dg(0, 7, 1, 2), 0.0);
  EXPECT_NE(c.dg(0, 7, 1, 3), 0.0);
}

TEST(RefBackward, LinearGates) {
  GradientCase c = small_case(GateProfile::kStrong);
  c.gate_space = SLUICE_GATE_LINEAR;
  for (double& g : c.g.values) g = std::exp(g);
  c.expect_gradients();
}

TEST(RefBackward, NoGateNoStrengthsNoFinalState) {
  GradientCase c = small_case(GateProfile::kNone);
  c.beta = {}, c.dbeta = {};
  c.final_counts = false;
  c.expect_gradients();
}

TEST(RefBackward, ClampedGatesHaveNoGradient) {
  GradientCase c = small_case(GateProfile::kSlow);
  c.g(0, 7, 1) = -HUGE_VAL, c.g(0, 9, 1) = -300;
  c.gradients();
  EXPECT_EQ(c.dg(0, 7, 1), 0.0);
  EXPECT_EQ(c.dg(0, 9, 1), 0.0);
  EXPECT_NE(c.dg(0, 8, 1), 0.0);
  for (const Array* a : {&c.dq, &c.dk, &c.dv, &c.dg, &c.dbeta, &c.dinitial}) {
    EXPECT_TRUE(
        std::all_of(a->values.begin(), a->values.end(), [](double x) { return std::isfinite(x); }));
  }
}

TEST(RefBackward, EmptySequencesPassTheGradientOfTheirStateThrough) {
  GradientCase c = small_case(GateProfile::kSlow);
  c.B = 2, c.T = 0;
  c.generate_all(GateProfile::kSlow, 1);
  c.o = {}, c.final = {};
  c.gradients();
  EXPECT_EQ(c.dinitial.values, c.d_final.values);
}

}  // namespace
}  // namespace sluice
