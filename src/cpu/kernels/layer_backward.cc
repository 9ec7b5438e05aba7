// Computes gradients of a layer: its parts forwards as far as needed, then theirs, the last first.
// Math:     docs/math.md sections 8 and 10.
// Roles:    those of the operators, which run one after the other.
// Memory:   LayerGradients below; one layout gives the size query and the run their offsets.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cpu/kernels/dense_views.hpp"
#include "cpu/kernels/operators.hpp"

namespace sluice::cpu {
namespace {

using core::LayerBackwardProblem, core::Tensor;

/// The parts with their memory between them: convolved rows in qkv's dtype, all else in float32.
struct LayerGradients {
  core::CausalConvBackwardProblem conv[3];
  core::DeltaRuleProblem rule;  ///< the forward call
  core::ChunkBackwardProblem delta;
  core::GatedNormBackwardProblem norm;
  bool runs_rule;  ///< the core output is not given
  DenseViews views;

  LayerGradients(const LayerBackwardProblem& problem, uintptr_t base) noexcept
      : delta(problem.delta),
        norm(problem.norm),
        runs_rule(!core::present(problem.norm.forward.x)),
        views(base) {
    std::copy_n(problem.conv, 3, conv);
    core::DeltaRuleProblem& p = delta.forward;
    const int64_t B = p.rows.B, T = p.rows.T;
    const sluice_dtype io = conv[0].forward.x.dtype;
    p.q = views.take(io, {B, T, p.H, p.K}), p.k = views.take(io, {B, T, p.H, p.K});
    p.v = views.take(io, {B, T, p.HV, p.V});
    for (Tensor* t : {&delta.dq, &delta.dk}) *t = views.take(core::kFloat32, {B, T, p.H, p.K});
    for (Tensor* t : {&delta.dv, &delta.d_o}) *t = views.take(core::kFloat32, {B, T, p.HV, p.V});
    norm.dx = norm_rows(delta.d_o);
    rule = p;
    rule.op = SLUICE_OP_CHUNK_FORWARD;
    if (runs_rule) {
      rule.o = views.take(core::kFloat32, {B, T, p.HV, p.V});
      norm.forward.x = norm_rows(rule.o);
    }
    const Tensor* parts[3][2] = {{&p.q, &delta.dq}, {&p.k, &delta.dk}, {&p.v, &delta.dv}};
    for (int i = 0; i < 3; ++i) {
      conv[i].forward.out = by_group(*parts[i][0], conv[i].forward);
      conv[i].d_out = by_group(*parts[i][1], conv[i].forward);
    }
  }

 private:
  Tensor norm_rows(const Tensor& t) const noexcept {
    const core::DeltaRuleProblem& p = delta.forward;
    return core::dense_view(t.data, t.dtype, {p.rows.B, p.rows.T, p.HV / p.r, p.r, p.V});
  }
  static Tensor by_group(const Tensor& t, const core::CausalConvProblem& conv) noexcept {
    return core::dense_view(t.data, t.dtype, {t.shape[0], t.shape[1], conv.G, conv.C});
  }
};

}  // namespace

size_t layer_backward_workspace(const LayerBackwardProblem& problem) noexcept {
  const LayerGradients parts(problem, DenseViews::kAnyBase);
  size_t most = std::max(chunk_backward_workspace(parts.delta),
                         gated_rms_norm_backward_workspace(parts.norm));
  if (parts.runs_rule) most = std::max(most, chunk_forward_workspace(parts.rule));
  for (const auto& conv : parts.conv) {
    most = std::max(most, causal_conv1d_backward_workspace(conv));
  }
  return parts.views.bytes() + most;
}

void layer_backward(const LayerBackwardProblem& problem, void* scratch) noexcept {
  LayerGradients parts(problem, reinterpret_cast<uintptr_t>(scratch));
  void* const rest = parts.views.rest();
  for (const auto& conv : parts.conv) causal_conv1d(conv.forward);
  if (parts.runs_rule) chunk_forward(parts.rule, rest);
  // Rows past the last sequence are not the caller's to see.
  parts.norm.d_out.shape[1] = core::rows_end(parts.rule.rows);
  gated_rms_norm_backward(parts.norm, rest);
  chunk_backward(parts.delta, rest);
  for (core::CausalConvBackwardProblem& conv : parts.conv) {
    conv.forward.out = {};
    causal_conv1d_backward(conv, rest);
  }
}

}  // namespace sluice::cpu
