// Computes a layer as its parts one after another, and its gradients by those of the parts from the
// last one to the first, in double.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "ref/operators.hpp"

namespace sluice::ref {
namespace {

using core::LayerBackwardProblem;
using core::LayerProblem;

/// Outputs of the convolutions and of the delta rule, and gradients by them where there are any, as
/// float64 views.
struct Between {
  Between(const core::DeltaRuleProblem& p, Arena& arena, bool gradients) noexcept {
    const int64_t B = p.rows.B, T = p.rows.T;
    const auto rows = [&](int64_t heads, int64_t columns) {
      return dense_view(arena.doubles(B * T * heads * columns), B, T, heads, columns);
    };
    for (Tensor* t : {&q, &k}) *t = rows(p.H, p.K);
    for (Tensor* t : {&v, &core}) *t = rows(p.HV, p.V);
    if (!gradients) return;
    for (Tensor* t : {&dq, &dk}) *t = rows(p.H, p.K);
    for (Tensor* t : {&dv, &dcore}) *t = rows(p.HV, p.V);
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

/// One of the convolutions to rows of its own.
void convolve(core::CausalConvProblem conv, const Tensor& rows) noexcept {
  conv.out = by_group(rows, conv);
  causal_conv1d(conv);
}

/// The delta rule on rows of its own.
core::DeltaRuleProblem rule_of(core::DeltaRuleProblem p, const Between& rows) noexcept {
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

/// The norm of sequence n, and its core output where that is asked for. A padded sequence gets
/// zeros whatever z holds.
void finish_sequence(const LayerProblem& problem, const core::GatedNormProblem& norm,
                     const Tensor& core_out, int64_t n) noexcept {
  const core::DeltaRuleProblem& delta = problem.delta;
  const core::TokenRange range = core::token_range(delta.rows, n);
  const bool padded = core::plan_slots(delta.state, delta.num_accepted, n).padded;
  for (int64_t t = range.begin; t < range.end; ++t) {
    for (int64_t h = 0; h < delta.HV; ++h) {
      const int64_t row[4] = {range.batch, t, h / delta.r, h % delta.r};
      if (!padded) gated_rms_norm_row(norm, row, norm.out.dtype);
      for (int64_t j = 0; j < delta.V; ++j) {
        if (padded) store(norm.out, 0.0, row[0], row[1], row[2], row[3], j);
        if (core::present(core_out)) {
          store(core_out, load(norm.x, row[0], row[1], row[2], row[3], j), range.batch, t, h, j);
        }
      }
    }
  }
}

}  // namespace

size_t layer_workspace(const LayerProblem& problem) noexcept {
  Arena counter(nullptr);
  const Between rows(problem.delta, counter, false);
  return counter.bytes() + delta_rule_workspace<RecurrentForm>(problem.delta);
}

void layer(const LayerProblem& problem, Arena arena) noexcept {
  const Between rows(problem.delta, arena, false);
  const Tensor convolved[3] = {rows.q, rows.k, rows.v};
  for (int i = 0; i < 3; ++i) convolve(problem.conv[i], convolved[i]);

  const core::DeltaRuleProblem delta = rule_of(problem.delta, rows);
  if (core::present(delta.ring.k)) {
    replay_steps(delta, arena);
  } else {
    delta_rule<RecurrentForm>(delta, arena);
  }

  core::GatedNormProblem norm = problem.norm;
  norm.x = norm_rows(rows.core, delta.r);
  for (int64_t n = 0; n < delta.rows.N; ++n) {
    finish_sequence(problem, norm, problem.delta.o, n);
  }
}

size_t layer_backward_workspace(const LayerBackwardProblem& problem) noexcept {
  Arena counter(nullptr);
  const Between rows(problem.delta.forward, counter, true);
  return counter.bytes() +
         std::max({delta_rule_workspace<RecurrentForm>(rule_of(problem.delta.forward, rows)),
                   chunk_backward_workspace(problem.delta),
                   gated_rms_norm_backward_workspace(problem.norm)});
}

void layer_backward(const LayerBackwardProblem& problem, Arena arena) noexcept {
  const Between rows(problem.delta.forward, arena, true);
  const Tensor convolved[3] = {rows.q, rows.k, rows.v};
  for (int i = 0; i < 3; ++i) convolve(problem.conv[i].forward, convolved[i]);
  if (!core::present(problem.norm.forward.x)) {
    delta_rule<RecurrentForm>(rule_of(problem.delta.forward, rows), arena);
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
