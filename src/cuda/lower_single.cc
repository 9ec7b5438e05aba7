// Steps of one token on whole heads: whether their kernel takes a problem, and the problem as it
// takes it.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/lower_single.h"

#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::present, core::Tensor;
using decode::SingleCommon, decode::SingleParams;

/// Whether slots of a pool are 32-bit numbers, and four numbers of a state one access; an absent
/// pool is the other one.
bool has_slots(const Tensor& pool) noexcept {
  if (!present(pool)) return true;
  constexpr int64_t kVector = 4;
  const int64_t bytes = bytes_of(pool), slot = pool.shape[0] <= 1 ? 0 : pool.stride[0];
  return pool.shape[0] > 0 && pool.shape[0] < INT32_MAX && slot >= 0 && slot * bytes <= INT32_MAX &&
         slot % kVector == 0 &&
         reinterpret_cast<uintptr_t>(pool.data) % static_cast<uintptr_t>(kVector * bytes) == 0;
}

decode::SingleScalar single_scalar(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), stride_of(t, 2), stride_of(t, 3),
          number_type(t.dtype)};
}

decode::SingleHeadScalar head_scalar(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), number_type(t.dtype)};
}

decode::SingleSlots single_slots(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {static_cast<const char*>(t.data), stride_of(t, 0), t.dtype.bits == 64};
}

decode::SinglePool single_pool(const Tensor& t) noexcept {
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

decode::SinglePlan plan_of(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  return decode::plan_single(p.rows.N * p.HV, state_number(p), multiprocessors);
}

}  // namespace

bool takes_common(const DeltaRuleProblem& p) noexcept {
  const Tensor &initial = p.state.initial, &final = p.state.final;
  const bool sizes = p.K == decode::kSingleSize && p.V == decode::kSingleSize &&
                     p.state.layout == SLUICE_STATE_KV && p.rows.max_tokens == 1 &&
                     !present(p.rows.cu_seqlens) && !present(p.num_accepted) &&
                     !present(p.key_gate);
  constexpr int64_t kMaxGrid = 1 << 16, kMaxHeads = 1 << 10;
  if (!sizes || p.rows.N >= kMaxGrid || p.H >= kMaxGrid || p.r >= kMaxHeads) return false;
  if (!present(initial) && !present(final)) return false;
  if (present(initial) && present(final) &&
      number_type(initial.dtype) != number_type(final.dtype)) {
    return false;
  }
  if (p.state.pad_below < INT32_MIN || p.state.pad_below > INT32_MAX) return false;
  for (const Tensor* t : {&p.gate, &p.beta, &p.A_log, &p.dt_bias, &p.state.read_slots,
                          &p.state.write_slots, &p.state.has_initial_state}) {
    if (present(*t) && !has_strides(*t)) return false;
  }
  return has_slots(initial) && has_slots(final);
}

void lower_common(const DeltaRuleProblem& p, SingleCommon* out) noexcept {
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
  out->dt_bias = head_scalar(p.dt_bias);
  out->gate_form = gate_form(p);
  out->beta_form = beta_form(p);
  out->scale = static_cast<float>(p.scale);
  out->beta_factor = static_cast<float>(p.beta_factor);
  out->l2norm_eps = static_cast<float>(p.l2norm_eps);
}

decode::SingleKind single_kind(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  return {state_number(p), number_type(p.q.dtype), plan_of(p, multiprocessors).cut};
}

bool takes_single(const DeltaRuleProblem& p) noexcept {
  if (!takes_common(p)) return false;
  constexpr int64_t kAligned = 16;
  const auto number = number_type(p.q.dtype);
  for (const Tensor* t : {&p.q, &p.k, &p.v, &p.o}) {
    if (!has_rows(*t, kAligned) || number_type(t->dtype) != number) return false;
  }
  return decode::has_single(single_kind(p, 1));
}

SingleParams lower_single(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  SingleParams out{};
  lower_common(p, &out);
  out.q = single_rows(p.q);
  out.k = single_rows(p.k);
  out.v = single_rows(p.v);
  const decode::SinglePlan plan = plan_of(p, multiprocessors);
  out.early = plan.early;
  out.ctas = plan.ctas;
  out.keeps = out.keeps && plan.keeps;
  return out;
}

}  // namespace sluice::cuda
