// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/plan_grid.hpp"
#include "cuda/lower_views.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::CausalConvProblem, core::DeltaRuleProblem, core::LayerProblem, core::present;
using core::Tensor;
using decode::DecodeParams;

decode::NumberVector numbers_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], number_type(t.dtype)};
}

void lower_state(const DeltaRuleProblem& p, device::StateSlots* out) noexcept {
  out->initial = pool_of(p.state.initial);
  out->final = pool_of(p.state.final);
  out->read_slots = table_of(p.state.read_slots);
  out->write_slots = table_of(p.state.write_slots);
  out->num_accepted = indices_of(p.num_accepted);
  if (present(p.state.has_initial_state)) {
    out->has_initial_state = static_cast<const uint8_t*>(p.state.has_initial_state.data);
    out->has_initial_stride = p.state.has_initial_state.stride[0];
  }
  out->pad_below = p.state.pad_below;
}

/// Whether both pools have states of one 16-bit dtype.
bool is_16bit(const DeltaRuleProblem& p) noexcept {
  if (!present(p.state.initial) || !present(p.state.final)) return false;
  const device::Number number = number_type(p.state.initial.dtype);
  return number != device::Number::kFloat32 && number == number_type(p.state.final.dtype);
}

/// What follows from the grid.
void cut(const DeltaRuleProblem& p, int multiprocessors, DecodeParams* out) noexcept {
  out->tiles_per_head = decode::tiles_per_head(out->V, out->grid.column_bits);
  out->by_tiles_per_head = decode::Divisor::of(out->tiles_per_head);
  out->by_tiles = decode::Divisor::of(out->grid.tiles);
  out->by_columns = decode::Divisor::of(out->grid.columns());
  // PERF more CTAs than are resident would ask the L2 for what it drops before they start
  out->prefetch = p.rows.N * p.H * out->grid.ctas <= 2 * int64_t{multiprocessors} &&
                  present(p.state.initial) && !present(p.num_accepted);
}

void lower_grid(const DeltaRuleProblem& p, bool layer, int multiprocessors,
                DecodeParams* out) noexcept {
  const decode::Work work{p.rows.N * p.H,       out->V, out->K,          out->r,
                          out->rows.max_tokens, layer,  out->by_element, present(p.ring.k)};
  out->grid = decode::plan_grid(work, multiprocessors);
  out->packed =
      !layer && p.state.layout == SLUICE_STATE_KV && out->rows.max_tokens == 1 && is_16bit(p);
  cut(p, multiprocessors, out);
}

/// What the delta rule alone and a layer have in common.
DecodeParams lower_shared(const DeltaRuleProblem& p, bool layer, int multiprocessors) noexcept {
  DecodeParams out{};
  out.o = rows_of(p.o);
  out.gate = scalar_of(p.gate);
  out.beta = scalar_of(p.beta);
  out.A_log = vector_of(p.A_log);
  out.dt_bias = vector_of(p.dt_bias);
  out.rows = {indices_of(p.rows.cu_seqlens), p.rows.T, static_cast<int32_t>(p.rows.max_tokens)};
  lower_state(p, &out.state);
  out.H = static_cast<int32_t>(p.H);
  out.K = static_cast<int32_t>(p.K);
  out.V = static_cast<int32_t>(p.V);
  out.r = static_cast<int32_t>(p.r);
  out.by_element = layer && !moves_vectors(p);
  lower_grid(p, layer, multiprocessors, &out);
  out.by_r = decode::Divisor::of(out.r);
  out.scale = static_cast<float>(p.scale);
  out.beta_factor = static_cast<float>(p.beta_factor);
  out.l2norm_eps = static_cast<float>(p.l2norm_eps);
  out.gate_form = gate_form(p);
  out.beta_form = beta_form(p);
  out.l2norm = p.qk_norm == SLUICE_QK_NORM_L2;
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out.write_last = p.state_writes == SLUICE_STATE_WRITE_LAST;
  out.write_per_token = p.state_writes == SLUICE_STATE_WRITE_PER_TOKEN;
  return out;
}

/// The pools of the three parts are slices of one.
decode::ConvPool conv_pool(const Tensor& q, const Tensor& k, const Tensor& v) noexcept {
  if (!present(q)) return {};
  return {{q.data, k.data, v.data}, q.stride[0], q.stride[1], q.stride[2], q.shape[0],
          number_type(q.dtype)};
}

void lower_conv(const CausalConvProblem (&parts)[3], decode::ConvParams* out) noexcept {
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

void lower_norm(const core::GatedNormProblem& p, decode::NormParams* out) noexcept {
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

DecodeParams lower_decode(const DeltaRuleProblem& problem, int multiprocessors) noexcept {
  DecodeParams out = lower_shared(problem, false, multiprocessors);
  out.q = rows_of(problem.q);
  out.k = rows_of(problem.k);
  out.v = rows_of(problem.v);
  return out;
}

DecodeParams lower_decode(const LayerProblem& problem, int multiprocessors) noexcept {
  DecodeParams out = lower_shared(problem.delta, true, multiprocessors);
  lower_conv(problem.conv, &out.conv);
  const PairLayout pairs = pair_layout(problem);
  out.conv.by_pairs = pairs != PairLayout::kNone;
  out.conv.columns_inside = pairs == PairLayout::kColumnsInside;
  lower_norm(problem.norm, &out.norm);
  out.layer = true;
  // With a replay ring it is the convolution states' alone: slots have one column.
  out.state.num_accepted = indices_of(problem.conv[0].state.num_accepted);
  return out;
}

}  // namespace sluice::cuda
