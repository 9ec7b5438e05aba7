// Makes the tensors of a chunk form in float64 and runs a stage on them, for the tests of the
// reference's stages.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_REF_STAGE_CASE_HPP_
#define SLUICE_TESTS_UNIT_REF_STAGE_CASE_HPP_

#include <vector>

#include "unit/ref_case.hpp"

namespace sluice {

/// Every tensor of a chain; those that a stage writes start as NaN. With `offsets` the rows are
/// packed.
struct StageCase {
  explicit StageCase(const Case& source, int64_t chunk, std::vector<int64_t> offsets = {})
      : in(source), C(chunk), cu(std::move(offsets)) {
    const int64_t B = in.B, T = in.T, HV = in.HV;
    const auto rows = [&](int64_t columns) { return Array({B, T, HV, columns}, std::nan("")); };
    g_cumsum = Array({B, T, HV}, std::nan(""));
    A = A_inverse = rows(C);
    w = rows(in.K);
    u = v_new = o = rows(in.V);
    h = Array({B, chunks(), HV, in.K, in.V}, std::nan(""));
    final = Array({sequences(), HV, in.K, in.V}, std::nan(""));
    if (!cu.empty()) index = check::TestTensor::of_indices(check::kI64, cu);
  }

  int64_t sequences() const { return cu.empty() ? in.B : static_cast<int64_t>(cu.size()) - 1; }
  int64_t chunks() const {
    if (cu.empty()) return core::chunk_count(in.T, C);
    int64_t count = 0;
    for (size_t n = 0; n + 1 < cu.size(); ++n) count += core::chunk_count(cu[n + 1] - cu[n], C);
    return count;
  }

  core::ChunkStageProblem problem(sluice_stage stage) const {
    core::ChunkStageProblem p;
    const bool delta = in.rule == SLUICE_RULE_GATED_DELTA;
    const bool state = stage == SLUICE_STAGE_CHUNK_H || stage == SLUICE_STAGE_CHUNK_O;
    p.stage = stage;
    p.rows = {in.B, in.T, sequences(), index.view(), in.T};
    p.H = in.H, p.HV = in.HV, p.K = in.K, p.V = in.V, p.r = in.HV / in.H, p.C = C;
    p.q = view_of(in.q), p.k = view_of(in.k), p.beta = view_of(in.beta);
    const bool sums = stage == SLUICE_STAGE_CHUNK_CUMSUM || stage == SLUICE_STAGE_CUMSUM_KKT;
    const bool cumulated = cumulated_gates && !sums;
    if (cumulated || sums) p.g_cumsum = view_of(g_cumsum);
    if (!cumulated) p.gate = view_of(in.g);
    p.A = view_of(A), p.A_inverse = view_of(A_inverse);
    const bool writes_w = stage == SLUICE_STAGE_WY_FAST || stage == SLUICE_STAGE_SOLVE_WY;
    if (delta || writes_w) p.w = view_of(w);
    p.u = view_of(u);
    if (stage == SLUICE_STAGE_CHUNK_H && delta) p.v_new = view_of(v_new);
    p.values = view_of(in.v);
    if (delta && stage == SLUICE_STAGE_CHUNK_H) p.values = view_of(u);
    if (delta && stage == SLUICE_STAGE_CHUNK_O) p.values = view_of(v_new);
    const bool has_h = with_h && state;
    if (has_h) p.h = view_of(h);
    if (stage == SLUICE_STAGE_CHUNK_O) p.o = view_of(o);
    if (stage == SLUICE_STAGE_CHUNK_H || (stage == SLUICE_STAGE_CHUNK_O && !has_h)) {
      p.state.initial = view_of(in.initial), p.state.final = view_of(final);
    }
    p.scale = 1.0 / std::sqrt(static_cast<double>(in.K));
    return p;
  }

  void run(const core::ChunkStageProblem& p) const {
    const auto& op = ref::chunked_backend().chunk_stage;
    core::Plan plan;
    ASSERT_TRUE(op.plan(p, core::PlanFor::kCall, &plan).ok());
    const check::TestWorkspace workspace(plan.workspace_bytes);
    ASSERT_TRUE(op.run(p, plan, workspace.get(), nullptr).ok());
    EXPECT_TRUE(workspace.guards_intact());
  }
  void run(sluice_stage stage) const { run(problem(stage)); }

  /// All stages that the rule has.
  void run_chain() const {
    if (cumulated_gates) run(SLUICE_STAGE_CHUNK_CUMSUM);
    if (in.rule == SLUICE_RULE_GATED_DELTA) {
      run(SLUICE_STAGE_SCALED_DOT_KKT);
      run(SLUICE_STAGE_SOLVE_TRIL);
      run(SLUICE_STAGE_WY_FAST);
    }
    if (with_h || in.rule == SLUICE_RULE_GATED_DELTA) run(SLUICE_STAGE_CHUNK_H);
    run(SLUICE_STAGE_CHUNK_O);
  }

  Case in;
  int64_t C;
  std::vector<int64_t> cu;
  check::TestTensor index;
  bool cumulated_gates = true, with_h = true;
  Array g_cumsum, A, A_inverse, w, u, v_new, h, o, final;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_UNIT_REF_STAGE_CASE_HPP_
