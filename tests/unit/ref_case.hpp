// Makes and runs a delta rule problem in float64, for the tests of the reference.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_REF_CASE_HPP_
#define SLUICE_TESTS_UNIT_REF_CASE_HPP_

#include <gtest/gtest.h>

#include <cmath>

#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "check/tensors.hpp"
#include "core/backend.hpp"

namespace sluice {

using check::Array;
using check::BetaProfile;
using check::GateProfile;
using check::KeyProfile;
using check::view_of;
using core::DeltaRuleProblem;

/// A delta rule problem in float64 that owns its arrays.
struct Case {
  int64_t B = 1, T = 150, H = 2, HV = 4, K = 24, V = 16;
  Array q, k, v, g, beta, initial, o, final;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;

  void generate(KeyProfile keys, GateProfile gates, BetaProfile betas) {
    q = make_keys(KeyProfile::kRandomUnit, {B, T, H, K}, 1);
    k = make_keys(keys, {B, T, H, K}, 2);
    v = check::make_normal({B, T, HV, V}, 3);
    g = make_gates(gates, {B, T, HV}, 4);
    beta = make_betas(betas, {B, T, HV}, 5);
    initial = check::make_normal({B, HV, K, V}, 6);
  }

  /// [B,T,HV] as [B,T,H,r].
  sluice_tensor split(const Array& per_head) const {
    if (per_head.empty()) return {};
    Array shaped;
    shaped.shape = {B, T, H, HV / H};
    sluice_tensor view = view_of(shaped);
    view.data = const_cast<double*>(per_head.values.data());
    return view;
  }

  DeltaRuleProblem problem() {
    if (o.empty()) o = Array({B, T, HV, V}, std::nan(""));
    if (final.empty()) final = Array({B, HV, K, V}, std::nan(""));
    DeltaRuleProblem p;
    p.rows = {B, T, B, {}, T};
    p.H = H, p.HV = HV, p.K = K, p.V = V, p.r = HV / H;
    p.q = view_of(q), p.k = view_of(k), p.v = view_of(v), p.o = view_of(o);
    p.gate = split(g), p.beta = split(beta);
    p.state.initial = view_of(initial), p.state.final = view_of(final);
    p.scale = 1.0 / std::sqrt(static_cast<double>(K));
    p.l2norm_eps = 1e-6;
    p.rule = rule;
    return p;
  }
};

inline void run(const core::Operator<DeltaRuleProblem>& op, const DeltaRuleProblem& problem) {
  core::Plan plan;
  ASSERT_TRUE(op.plan(problem, core::PlanFor::kCall, &plan).ok());
  const check::TestWorkspace workspace(plan.workspace_bytes);
  ASSERT_TRUE(op.run(problem, plan, workspace.get(), nullptr).ok());
  EXPECT_TRUE(workspace.guards_intact());
}
inline void run_recurrent(const DeltaRuleProblem& problem) {
  run(ref::recurrent_backend().chunk_forward, problem);
}
inline void run_chunked(const DeltaRuleProblem& problem) {
  run(ref::chunked_backend().chunk_forward, problem);
}

inline void expect_close(const Array& actual, const Array& expected, double limit) {
  const auto found = check::compare_whole(view_of(actual), view_of(expected));
  EXPECT_EQ(found.fault, "");
  EXPECT_LE(found.relative_l2, limit);
}

}  // namespace sluice

#endif  // SLUICE_TESTS_UNIT_REF_CASE_HPP_
