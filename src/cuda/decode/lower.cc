// Turns steps and layer steps into the parameters of the kernel for any case, and of that with a replay
// ring.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/lower_views.h"

namespace sluice::cuda::decode {
namespace {

using core::CausalConvProblem, core::DeltaRuleProblem, core::LayerProblem, core::present;
using core::Tensor;

ReplayArray entries_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], static_cast<int32_t>(t.stride[1]), number_type(t.dtype)};
}

NumberVector numbers_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], number_type(t.dtype)};
}

/// Whether both pools have states of one 16-bit dtype.
bool is_16bit(const DeltaRuleProblem& p) noexcept {
  if (!present(p.state.initial) || !present(p.state.final)) return false;
  const device::Number number = number_type(p.state.initial.dtype);
  return number != device::Number::kFloat32 && number == number_type(p.state.final.dtype);
}

/// What follows from how the launch is cut up.
void lower_plan(const DeltaRuleProblem& p, const StepPlan& plan, DecodeParams* out) noexcept {
  out->grid = plan.grid;
  out->by_element = plan.by_element;
  out->prefetch = plan.prefetch;
  out->tiles_per_head = tiles_per_head(static_cast<int>(p.V), plan.grid.column_bits);
  out->by_tiles_per_head = Divisor::of(out->tiles_per_head);
  out->by_tiles = Divisor::of(plan.grid.tiles);
  out->by_columns = Divisor::of(plan.grid.columns());
}

/// What the delta rule alone and a layer have in common.
DecodeParams lower_shared(const DeltaRuleProblem& p, const StepPlan& plan) noexcept {
  DecodeParams out{};
  out.o = rows_of(p.o);
  lower_gates(p, &out);
  out.rows = {indices_of(p.rows.cu_seqlens), p.rows.T, static_cast<int32_t>(p.rows.max_tokens)};
  out.state = slots_of(p.state);
  out.state.num_accepted = indices_of(p.num_accepted);
  out.H = static_cast<int32_t>(p.H);
  out.K = static_cast<int32_t>(p.K);
  out.V = static_cast<int32_t>(p.V);
  out.r = static_cast<int32_t>(p.r);
  lower_plan(p, plan, &out);
  out.by_r = Divisor::of(out.r);
  out.l2norm = p.qk_norm == SLUICE_QK_NORM_L2;
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out.write_last = p.state_writes == SLUICE_STATE_WRITE_LAST;
  out.write_per_token = p.state_writes == SLUICE_STATE_WRITE_PER_TOKEN;
  return out;
}

/// The pools of the three parts are slices of one.
ConvPool conv_pool(const Tensor& q, const Tensor& k, const Tensor& v) noexcept {
  if (!present(q)) return {};
  return {{q.data, k.data, v.data}, q.stride[0], q.stride[1], q.stride[2], q.shape[0],
          number_type(q.dtype)};
}

void lower_conv(const CausalConvProblem (&parts)[3], ConvParams* out) noexcept {
  for (int i = 0; i < 3; ++i) {
    out->x[i] = rows_of(parts[i].x);
    out->weight[i] = numbers_of(parts[i].weight);
    out->bias[i] = numbers_of(parts[i].bias);
  }
  const auto& [q, k, v] = parts;
  out->initial = conv_pool(q.state.initial, k.state.initial, v.state.initial);
  out->final = conv_pool(q.state.final, k.state.final, v.state.final);
  out->ring_position = indices_of(q.state.ring_position);
  out->W = static_cast<int32_t>(q.W);
  out->L = static_cast<int32_t>(q.L);
  out->in_place = q.state.initial.data == q.state.final.data;
}

void lower_norm(const core::GatedNormProblem& p, NormParams* out) noexcept {
  out->z = rows_of(p.z);
  out->out = rows_of(p.out);
  out->z_member_stride = p.z.stride[3];
  out->out_member_stride = p.out.stride[3];
  out->weight = numbers_of(p.weight);
  out->eps = static_cast<float>(p.eps);
  out->silu = p.activation == SLUICE_ACTIVATION_SILU;
  out->round_input = p.rounding != SLUICE_NORM_ROUND_ONCE;
  out->round_normed = p.rounding == SLUICE_NORM_ROUND_HF;
}

}  // namespace

Work work_of(const DeltaRuleProblem& p) noexcept {
  return {p.rows.N * p.H,
          static_cast<int>(p.V),
          static_cast<int>(p.K),
          static_cast<int>(p.r),
          static_cast<int>(p.rows.max_tokens),
          false,
          false,
          present(p.ring.k),
          present(p.key_gate)};
}

Work work_of(const LayerProblem& p, bool by_element) noexcept {
  Work work = work_of(p.delta);
  work.layer = true, work.by_element = by_element;
  return work;
}

StepPlan plan_work(const DeltaRuleProblem& p, const Work& work, int multiprocessors) noexcept {
  const Grid grid = plan_grid(work, multiprocessors);
  // PERF more CTAs than are resident would ask the L2 for what it drops before they start
  const bool prefetch = work.units * grid.ctas <= 2 * int64_t{multiprocessors} &&
                        present(p.state.initial) && !present(p.num_accepted);
  return {grid, work.by_element, prefetch};
}

bool is_packed(const DeltaRuleProblem& p) noexcept {
  return p.state.layout == SLUICE_STATE_KV && p.rows.max_tokens == 1 && is_16bit(p) &&
         !present(p.key_gate);
}

DecodeParams lower_any(const DeltaRuleProblem& problem, const StepPlan& plan) noexcept {
  DecodeParams out = lower_shared(problem, plan);
  out.q = rows_of(problem.q);
  out.k = rows_of(problem.k);
  out.v = rows_of(problem.v);
  out.packed = is_packed(problem);
  if (!present(problem.key_gate)) return out;
  out.key_gate = rows_of(problem.key_gate);
  out.key_form = form_of_space(problem);
  return out;
}

DecodeParams lower_any(const LayerProblem& problem, const StepPlan& plan) noexcept {
  DecodeParams out = lower_shared(problem.delta, plan);
  lower_conv(problem.conv, &out.conv);
  const PairLayout pairs = has_aligned_pairs(problem) ? pair_layout(problem) : PairLayout::kNone;
  out.conv.by_pairs = pairs != PairLayout::kNone;
  out.conv.columns_inside = pairs == PairLayout::kColumnsInside;
  lower_norm(problem.norm, &out.norm);
  out.layer = true;
  // With a replay ring it is the convolution states' alone: slots have one column.
  out.state.num_accepted = indices_of(problem.conv[0].state.num_accepted);
  return out;
}

ReplayParams lower_replay(const DeltaRuleProblem& problem, const DecodeParams& step) noexcept {
  const sluice_replay_ring& ring = problem.ring;
  ReplayParams out{};
  out.step = step;
  out.step.packed = problem.state.initial.dtype.bits == 16;
  out.k = entries_of(ring.k);
  out.delta = entries_of(ring.delta);
  out.decay = entries_of(ring.decay);
  out.position = indices_of(ring.position);
  out.checkpoint = indices_of(ring.checkpoint);
  out.next_checkpoint = indices_of(ring.next_checkpoint);
  out.L = static_cast<int32_t>(ring.k.shape[1]);
  out.always = ring.fold == SLUICE_RING_FOLD_ALWAYS;
  return out;
}

}  // namespace sluice::cuda::decode
