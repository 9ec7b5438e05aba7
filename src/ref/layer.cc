// Computes a layer as its parts one after another, in double.
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include "ref/access.hpp"
#include "ref/forms.hpp"

namespace sluice::ref {
namespace {

using core::LayerProblem;

/// Memory between the parts, in rows of [B, T].
struct Scratch {
  Scratch(const core::DeltaRuleProblem& delta, Arena& arena) noexcept {
    const int64_t rows = delta.rows.B * delta.rows.T;
    q = arena.doubles(rows * delta.H * delta.K);
    k = arena.doubles(rows * delta.H * delta.K);
    v = arena.doubles(rows * delta.HV * delta.V);
    core = arena.doubles(rows * delta.HV * delta.V);
  }
  double *q, *k, *v, *core;
};

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
  Scratch scratch(problem.delta, counter);
  return counter.bytes() + delta_rule_workspace<RecurrentForm>(problem.delta);
}

void layer(const LayerProblem& problem, Arena arena) noexcept {
  core::DeltaRuleProblem delta = problem.delta;
  const int64_t B = delta.rows.B, T = delta.rows.T;
  const Scratch scratch(delta, arena);

  double* const convolved[3] = {scratch.q, scratch.k, scratch.v};
  for (int part = 0; part < 3; ++part) {
    core::CausalConvProblem conv = problem.conv[part];
    conv.out = dense_view(convolved[part], B, T, conv.G, conv.C);
    causal_conv1d(conv);
  }

  delta.q = dense_view(scratch.q, B, T, delta.H, delta.K);
  delta.k = dense_view(scratch.k, B, T, delta.H, delta.K);
  delta.v = dense_view(scratch.v, B, T, delta.HV, delta.V);
  delta.o = dense_view(scratch.core, B, T, delta.HV, delta.V);
  if (core::present(delta.ring.k)) {
    replay_steps(delta, arena);
  } else {
    delta_rule<RecurrentForm>(delta, arena);
  }

  core::GatedNormProblem norm = problem.norm;
  norm.x = dense_view(scratch.core, B, T, delta.HV / delta.r, delta.r, delta.V);
  for (int64_t n = 0; n < delta.rows.N; ++n) {
    finish_sequence(problem, norm, problem.delta.o, n);
  }
}

}  // namespace sluice::ref
