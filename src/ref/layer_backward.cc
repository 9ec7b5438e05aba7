// Computes gradients of a layer by its parts from the last one to the first, in double.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "ref/operators.hpp"

namespace sluice::ref {
namespace {

using core::LayerBackwardProblem;

/// Outputs of the convolutions and of the delta rule, and gradients by them, as float64 views.
struct Between {
  Between(const core::DeltaRuleProblem& p, Arena& arena) noexcept {
    const int64_t B = p.rows.B, T = p.rows.T;
    const auto rows = [&](int64_t heads, int64_t columns) {
      return dense_view(arena.doubles(B * T * heads * columns), B, T, heads, columns);
    };
    for (Tensor* t : {&q, &k, &dq, &dk}) *t = rows(p.H, p.K);
    for (Tensor* t : {&v, &core, &dv, &dcore}) *t = rows(p.HV, p.V);
  }
  Tensor q, k, v, core, dq, dk, dv, dcore;
};

/// [B,T,heads,columns] as [B,T,G,C], both dense.
Tensor by_group(const Tensor& rows, const core::CausalConvProblem& conv) noexcept {
  return dense_view(static_cast<double*>(rows.data), rows.shape[0], rows.shape[1], conv.G, conv.C);
}

/// [B,T,HV,V] as the norm has its rows.
Tensor norm_rows(const Tensor& t, int64_t r) noexcept {
  Tensor rows = t;
  rows.rank = 5;
  rows.shape[2] = t.shape[2] / r, rows.stride[2] = t.stride[2] * r;
  rows.shape[3] = r, rows.stride[3] = t.stride[2];
  rows.shape[4] = t.shape[3], rows.stride[4] = t.stride[3];
  return rows;
}

core::DeltaRuleProblem forward_rule(const LayerBackwardProblem& problem,
                                    const Between& rows) noexcept {
  core::DeltaRuleProblem p = problem.delta.forward;
  p.op = SLUICE_OP_CHUNK_FORWARD;
  p.q = rows.q, p.k = rows.k, p.v = rows.v, p.o = rows.core;
  return p;
}

/// Gradients by the core output, by z and by the norm's weight, of rows that sequences have.
void norm_gradients(const LayerBackwardProblem& problem, const Between& rows,
                    Arena arena) noexcept {
  core::GatedNormBackwardProblem norm = problem.norm;
  const core::DeltaRuleProblem& p = problem.delta.forward;
  if (!core::present(norm.forward.x)) norm.forward.x = norm_rows(rows.core, p.r);
  norm.dx = norm_rows(rows.dcore, p.r);
  norm.d_out.shape[1] = core::rows_end(p.rows);
  gated_rms_norm_backward(norm, arena);
}

}  // namespace

size_t layer_backward_workspace(const LayerBackwardProblem& problem) noexcept {
  Arena counter(nullptr);
  const Between rows(problem.delta.forward, counter);
  return counter.bytes() +
         std::max({delta_rule_workspace<RecurrentForm>(forward_rule(problem, rows)),
                   chunk_backward_workspace(problem.delta),
                   gated_rms_norm_backward_workspace(problem.norm)});
}

void layer_backward(const LayerBackwardProblem& problem, Arena arena) noexcept {
  const Between rows(problem.delta.forward, arena);
  const Tensor convolved[3] = {rows.q, rows.k, rows.v};
  for (int i = 0; i < 3; ++i) {
    core::CausalConvProblem conv = problem.conv[i].forward;
    conv.out = by_group(convolved[i], conv);
    causal_conv1d(conv);
  }
  if (!core::present(problem.norm.forward.x)) {
    delta_rule<RecurrentForm>(forward_rule(problem, rows), arena);
  }
  norm_gradients(problem, rows, arena);

  core::ChunkBackwardProblem delta = problem.delta;
  delta.forward.q = rows.q, delta.forward.k = rows.k, delta.forward.v = rows.v;
  delta.d_o = rows.dcore;
  delta.dq = rows.dq, delta.dk = rows.dk, delta.dv = rows.dv;
  chunk_backward(delta, arena);

  const Tensor gradients[3] = {rows.dq, rows.dk, rows.dv};
  for (int i = 0; i < 3; ++i) {
    core::CausalConvBackwardProblem conv = problem.conv[i];
    conv.d_out = by_group(gradients[i], conv.forward);
    causal_conv1d_backward(conv);
  }
}

}  // namespace sluice::ref
