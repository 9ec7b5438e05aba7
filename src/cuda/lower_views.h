// Describes views of validated problems as kernels take them, for all lowerings.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LOWER_VIEWS_H_
#define SLUICE_CUDA_LOWER_VIEWS_H_

#include <bit>

#include "core/problem.hpp"
#include "cuda/device/views.h"
#include "cuda/tile/token_map.hpp"

namespace sluice::cuda {

inline device::Number number_type(sluice_dtype dtype) noexcept {
  constexpr int kBf16Code = 4;
  if (dtype.bits == 32) return device::Number::kFloat32;
  return dtype.code == kBf16Code ? device::Number::kBfloat16 : device::Number::kFloat16;
}

inline device::IndexVector indices_of(const core::Tensor& t) noexcept {
  return core::present(t) ? device::IndexVector{t.data, t.stride[0], t.dtype.bits == 64}
                          : device::IndexVector{};
}

inline device::HeadScalar vector_of(const core::Tensor& t) noexcept {
  return core::present(t) ? device::HeadScalar{t.data, t.stride[0], number_type(t.dtype)}
                          : device::HeadScalar{};
}

inline device::TokenRows rows_of(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  return {t.data, t.stride[0], t.stride[1], t.stride[2], number_type(t.dtype)};
}

/// A tensor of 16-bit numbers for a map of the copy engine.
inline tile::TokenTensor token_tensor(const core::Tensor& t) noexcept {
  return {t.data,      t.shape[0],  t.shape[1],
          t.shape[2],  t.shape[3],  t.stride[0],
          t.stride[1], t.stride[2], number_type(t.dtype) == device::Number::kBfloat16};
}

inline device::TokenScalar scalar_of(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  const int64_t bytes = t.dtype.bits / 8;
  return {t.data,
          t.stride[0] * bytes,
          t.stride[1] * bytes,
          t.stride[2] * bytes,
          t.stride[3] * bytes,
          number_type(t.dtype)};
}

inline device::SlotTable table_of(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  const bool columns = t.rank == 2;
  return {indices_of(t), columns ? t.shape[1] : 1, columns ? t.stride[1] : 0};
}

inline device::BoundedPool pool_of(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  return {{t.data, t.stride[0], number_type(t.dtype)}, t.shape[0]};
}

/// Where states come from and go to, but for accepted drafts.
inline device::StateSlots slots_of(const sluice_state_io& state) noexcept {
  device::StateSlots out{};
  out.initial = pool_of(state.initial);
  out.final = pool_of(state.final);
  out.read_slots = table_of(state.read_slots);
  out.write_slots = table_of(state.write_slots);
  if (core::present(state.has_initial_state)) {
    out.has_initial_state = static_cast<const uint8_t*>(state.has_initial_state.data);
    out.has_initial_stride = state.has_initial_state.stride[0];
  }
  out.pad_below = state.pad_below;
  return out;
}

/// Whether rows are whole packs of 16 bytes apart.
inline bool has_packed_strides(const core::Tensor& t) noexcept {
  if (!core::present(t)) return true;
  const int64_t pack = 128 / t.dtype.bits;
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    if (t.shape[axis] > 1 && t.stride[axis] % pack != 0) return false;
  }
  return true;
}

/// Whether the first row begins at a multiple of 16 bytes.
inline bool has_packed_address(const core::Tensor& t) noexcept {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

/// Of gates that are given, scalar or key-wise.
inline device::GateForm form_of_space(const core::DeltaRuleProblem& p) noexcept {
  if (p.gate_space == SLUICE_GATE_RAW) return device::GateForm::kRaw;
  if (p.gate_space == SLUICE_GATE_RAW_BOUNDED) {
    return std::bit_cast<device::GateForm>(static_cast<float>(p.gate_lower_bound));
  }
  return p.gate_space == SLUICE_GATE_LINEAR ? device::GateForm::kLinear : device::GateForm::kLog;
}

inline device::GateForm gate_form(const core::DeltaRuleProblem& p) noexcept {
  return core::present(p.gate) ? form_of_space(p) : device::GateForm::kNone;
}

inline device::BetaForm beta_form(const core::DeltaRuleProblem& p) noexcept {
  if (!core::present(p.beta)) return device::BetaForm::kNone;
  return p.beta_space == SLUICE_BETA_LOGIT ? device::BetaForm::kLogit : device::BetaForm::kValue;
}

/// What parameters of all kernels of the delta rule name alike.
template <class Params>
void lower_gates(const core::DeltaRuleProblem& p, Params* out) noexcept {
  out->gate = scalar_of(p.gate);
  out->beta = scalar_of(p.beta);
  out->A_log = vector_of(p.A_log);
  out->dt_bias = vector_of(p.dt_bias);
  out->gate_form = gate_form(p);
  out->beta_form = beta_form(p);
  out->beta_factor = static_cast<float>(p.beta_factor);
  out->scale = static_cast<float>(p.scale);
  out->l2norm_eps = static_cast<float>(p.l2norm_eps);
  out->head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LOWER_VIEWS_H_
