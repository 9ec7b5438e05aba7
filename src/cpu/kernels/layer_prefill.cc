// Computes a layer's prefill: convolution, delta rule and norm, one after the other.
// Math:     conv + SiLU on [q|k|v] -> gated delta rule -> gated RMSNorm.
// Roles:    those of the three operators, which run one after the other.
// Memory:   LayerPlan below; one plan gives the size query and the run their offsets.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/dense_views.hpp"
#include "cpu/kernels/size_limits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/layer_prefill.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/isa.hpp"
#include "cpu/kernels/convert-inl.h"
#include "cpu/parallel_for.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

/// Rows of sequences from the float32 view `source` to `target`, both [B,T,HV,V].
void convert_rows(const core::Rows& rows, const core::Tensor& source, const core::Tensor& target) {
  const int64_t HV = target.shape[2], V = target.shape[3];
  const int64_t T = core::rows_end(rows);  // rows past it are not the caller's to see
  auto item = [&](int64_t index, int) {
    const int64_t batch = index / T, token = index % T;
    for (int64_t h = 0; h < HV; ++h) {
      const auto* row = static_cast<const float*>(core::address(source, batch, token, h, 0));
      write_dense(row, V, core::address(target, batch, token, h, 0), target.dtype);
    }
  };
  parallel_for(rows.B * T, worker_count(), item);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(convert_rows);

namespace {

using core::LayerProblem;
using core::Tensor;

/// The parts with their memory between them, laid out from a base address.
struct LayerPlan {
  core::CausalConvProblem conv[3];
  core::DeltaRuleProblem delta;
  core::GatedNormProblem norm;
  bool converts = false;  ///< core_out is asked for, but is not where the core output goes
  DenseViews views;

  LayerPlan(const LayerProblem& problem, uintptr_t base) noexcept
      : delta(problem.delta), norm(problem.norm), views(base) {
    std::copy_n(problem.conv, 3, conv);
    const int64_t B = delta.rows.B, T = delta.rows.T;
    const sluice_dtype io = conv[0].x.dtype;
    delta.q = views.take(io, {B, T, delta.H, delta.K});
    delta.k = views.take(io, {B, T, delta.H, delta.K});
    delta.v = views.take(io, {B, T, delta.HV, delta.V});
    const Tensor* parts[3] = {&delta.q, &delta.k, &delta.v};
    for (int i = 0; i < 3; ++i) {
      conv[i].out = core::dense_view(parts[i]->data, io, {B, T, conv[i].G, conv[i].C});
    }
    const bool direct =
        core::present(problem.delta.o) && core::same(problem.delta.o.dtype, core::kFloat32);
    if (!direct) {
      converts = core::present(problem.delta.o);
      delta.o = views.take(core::kFloat32, {B, T, delta.HV, delta.V});
      norm.x = core::dense_view(delta.o.data, core::kFloat32,
                                {B, T, delta.HV / delta.r, delta.r, delta.V});
    }
  }
};

/// Steps with a replay buffer come here too: operators.hpp.
bool by_steps(const core::DeltaRuleProblem& delta) noexcept {
  return delta.op == SLUICE_OP_RECURRENT_STEP;
}

size_t delta_workspace(const core::DeltaRuleProblem& delta) noexcept {
  return by_steps(delta) ? recurrent_step_workspace(delta) : chunk_forward_workspace(delta);
}

}  // namespace

size_t layer_prefill_workspace(const LayerProblem& problem) noexcept {
  const LayerPlan plan(problem, DenseViews::kAnyBase);
  return plan.views.bytes() + delta_workspace(plan.delta);
}

void layer_prefill(const LayerProblem& problem, void* scratch) noexcept {
  const LayerPlan plan(problem, reinterpret_cast<uintptr_t>(scratch));
  for (const core::CausalConvProblem& conv : plan.conv) causal_conv1d(conv);
  const auto run_delta = by_steps(plan.delta) ? recurrent_step : chunk_forward;
  run_delta(plan.delta, plan.views.rest());
  if (plan.converts) {
    HWY_DYNAMIC_DISPATCH(convert_rows)(problem.delta.rows, plan.delta.o, problem.delta.o);
  }
  layer_norm_rows(plan.norm, plan.delta);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
