// Turns steps of one token on whole heads into the parameters of their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/decode/single_views.h"

namespace sluice::cuda::decode {
namespace {

using core::DeltaRuleProblem, core::present, core::Tensor;

SingleScalar single_scalar(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), stride_of(t, 2), stride_of(t, 3),
          number_type(t.dtype)};
}

SingleHeadScalar head_scalar(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), number_type(t.dtype)};
}

SingleSlots single_slots(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), t.dtype.bits == 64};
}

SinglePool single_pool(const Tensor& t) noexcept {
  return {static_cast<char*>(t.data), static_cast<int32_t>(t.shape[0]), stride_of(t, 0)};
}

void lower_pools(const DeltaRuleProblem& p, SingleCommon* out) noexcept {
  const Tensor &initial = p.state.initial, &final = p.state.final;
  out->has_initial = present(initial);
  out->has_final = present(final);
  out->initial = single_pool(present(initial) ? initial : final);
  out->final = single_pool(present(final) ? final : initial);
  out->read_slots = single_slots(p.state.read_slots);
  out->write_slots = single_slots(p.state.write_slots);
  out->keeps =
      out->initial.data == out->final.data && out->read_slots.data == out->write_slots.data;
  out->pad_below = static_cast<int32_t>(p.state.pad_below);
  if (!present(p.state.has_initial_state)) return;
  out->has_initial_state = static_cast<const uint8_t*>(p.state.has_initial_state.data);
  out->has_initial_stride = stride_of(p.state.has_initial_state, 0);
}

}  // namespace

SingleKeyRows single_key_rows(const Tensor& t) noexcept {
  if (!present(t)) return {};
  const bool tokens = t.rank == 4;
  return {static_cast<const char*>(t.data), tokens ? stride_of(t, 0) : 0,
          stride_of(t, tokens ? 2 : 0), number_type(t.dtype)};
}

void lower_single_common(const DeltaRuleProblem& p, SingleCommon* out) noexcept {
  lower_pools(p, out);
  out->heads = static_cast<uint32_t>(p.rows.N * p.HV);
  out->r = static_cast<uint32_t>(p.r);
  out->H = static_cast<uint32_t>(p.H);
  out->head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out->l2norm = p.qk_norm == SLUICE_QK_NORM_L2;
  out->delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out->o = single_rows(p.o);
  out->gate = single_scalar(p.gate);
  out->beta = single_scalar(p.beta);
  out->A_log = head_scalar(p.A_log);
  if (!present(p.key_gate)) out->dt_bias = head_scalar(p.dt_bias);
  out->gate_form = gate_form(p);
  out->beta_form = beta_form(p);
  out->scale = static_cast<float>(p.scale);
  out->beta_factor = static_cast<float>(p.beta_factor);
  out->l2norm_eps = static_cast<float>(p.l2norm_eps);
}

SingleKeyParams lower_single_step(const DeltaRuleProblem& p, const SinglePlan& plan) noexcept {
  SingleKeyParams out{};
  lower_single_common(p, &out);
  out.q = single_rows(p.q);
  out.k = single_rows(p.k);
  out.v = single_rows(p.v);
  out.early = plan.early;
  out.ctas = plan.ctas;
  out.keeps = out.keeps && plan.keeps;
  if (!present(p.key_gate)) return out;
  out.key_gate = single_key_rows(p.key_gate);
  out.key_bias = single_key_rows(p.dt_bias);
  out.key_form = form_of_space(p);
  return out;
}

}  // namespace sluice::cuda::decode
