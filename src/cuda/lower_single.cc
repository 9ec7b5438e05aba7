// Steps of one token on whole heads: whether their kernel takes a problem, and the problem as it
// takes it. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>

#include "cuda/lower_views.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::present, core::Tensor;
using decode::SingleParams;

int64_t bytes_of(const Tensor& t) noexcept { return t.dtype.bits / 8; }

/// Whether a stride in bytes is one of SingleParams. An axis of one element has any.
bool is_stride(int64_t extent, int64_t bytes) noexcept {
  return extent <= 1 || (bytes >= 0 && bytes <= INT32_MAX);
}

bool has_strides(const Tensor& t) noexcept {
  for (int axis = 0; axis < static_cast<int>(t.rank); ++axis) {
    if (!is_stride(t.shape[axis], t.stride[axis] * bytes_of(t))) return false;
  }
  return true;
}

uint32_t stride_of(const Tensor& t, int axis) noexcept {
  return t.shape[axis] <= 1 ? 0 : static_cast<uint32_t>(t.stride[axis] * bytes_of(t));
}

/// [N,1,heads,128] whose rows are 16-byte aligned.
bool has_rows(const Tensor& t) noexcept {
  constexpr int64_t kAligned = 16;
  bool aligned = reinterpret_cast<uintptr_t>(t.data) % kAligned == 0 && t.dtype.bits == 16;
  for (const int axis : {0, 2}) {
    aligned = aligned && (t.shape[axis] <= 1 || t.stride[axis] * bytes_of(t) % kAligned == 0);
  }
  return aligned && has_strides(t);
}

/// Whether slots of a pool are 32-bit numbers; an absent one is the other one.
bool has_slots(const Tensor& pool) noexcept {
  return !present(pool) || (pool.shape[0] > 0 && pool.shape[0] < INT32_MAX &&
                            is_stride(pool.shape[0], pool.stride[0] * bytes_of(pool)));
}

decode::SingleRows single_rows(const Tensor& t) noexcept {
  return {static_cast<char*>(t.data), stride_of(t, 0), stride_of(t, 2)};
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

void lower_pools(const DeltaRuleProblem& p, SingleParams* out) noexcept {
  const Tensor &initial = p.state.initial, &final = p.state.final;
  out->has_initial = present(initial);
  out->has_final = present(final);
  out->initial = single_pool(present(initial) ? initial : final);
  out->final = single_pool(present(final) ? final : initial);
  out->read_slots = single_slots(p.state.read_slots);
  out->write_slots = single_slots(p.state.write_slots);
  out->pad_below = static_cast<int32_t>(p.state.pad_below);
  if (!present(p.state.has_initial_state)) return;
  out->has_initial_state = static_cast<const uint8_t*>(p.state.has_initial_state.data);
  out->has_initial_stride = stride_of(p.state.has_initial_state, 0);
}

device::Number state_number(const DeltaRuleProblem& p) noexcept {
  return number_type(present(p.state.initial) ? p.state.initial.dtype : p.state.final.dtype);
}

decode::SinglePlan plan_of(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  return decode::plan_single(p.rows.N * p.HV, state_number(p), multiprocessors);
}

}  // namespace

decode::SingleKind single_kind(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  return {state_number(p), number_type(p.q.dtype), plan_of(p, multiprocessors).cut};
}

bool takes_single(const DeltaRuleProblem& p) noexcept {
  const Tensor &initial = p.state.initial, &final = p.state.final;
  const bool sizes = p.K == decode::kSingleSize && p.V == decode::kSingleSize &&
                     p.state.layout == SLUICE_STATE_KV && p.rows.max_tokens == 1 &&
                     !present(p.rows.cu_seqlens) && !present(p.num_accepted);
  if (!sizes || (!present(initial) && !present(final))) return false;
  if (present(initial) && present(final) &&
      number_type(initial.dtype) != number_type(final.dtype)) {
    return false;
  }
  if (p.state.pad_below < INT32_MIN || p.state.pad_below > INT32_MAX) return false;
  const auto rows = {&p.q, &p.k, &p.v, &p.o};
  const auto others = {&p.gate,
                       &p.beta,
                       &p.A_log,
                       &p.dt_bias,
                       &p.state.read_slots,
                       &p.state.write_slots,
                       &p.state.has_initial_state};
  const auto number = number_type(p.q.dtype);
  return has_slots(initial) && has_slots(final) &&
         std::all_of(
             rows.begin(), rows.end(),
             [&](const Tensor* t) { return has_rows(*t) && number_type(t->dtype) == number; }) &&
         std::all_of(others.begin(), others.end(),
                     [](const Tensor* t) { return !present(*t) || has_strides(*t); }) &&
         decode::has_single(single_kind(p, 1));
}

SingleParams lower_single(const DeltaRuleProblem& p, int multiprocessors) noexcept {
  SingleParams out{};
  lower_pools(p, &out);
  out.r = static_cast<uint32_t>(p.r);
  out.H = static_cast<uint32_t>(p.H);
  out.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out.l2norm = p.qk_norm == SLUICE_QK_NORM_L2;
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out.q = single_rows(p.q);
  out.k = single_rows(p.k);
  out.v = single_rows(p.v);
  out.o = single_rows(p.o);
  out.gate = single_scalar(p.gate);
  out.beta = single_scalar(p.beta);
  out.A_log = head_scalar(p.A_log);
  out.dt_bias = head_scalar(p.dt_bias);
  out.gate_form = gate_form(p);
  out.beta_form = beta_form(p);
  out.scale = static_cast<float>(p.scale);
  out.beta_factor = static_cast<float>(p.beta_factor);
  out.l2norm_eps = static_cast<float>(p.l2norm_eps);
  const decode::SinglePlan plan = plan_of(p, multiprocessors);
  out.prefetch = plan.prefetch;
  out.early = plan.early;
  return out;
}

}  // namespace sluice::cuda
