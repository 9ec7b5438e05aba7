// Reads and writes elements of strided views as doubles: exact loads, stores of one rounding; and states
// of a pool in either layout. Views of float64 exist inside the reference only, between the parts of a
// layer.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_ACCESS_HPP_
#define SLUICE_REF_ACCESS_HPP_

#include <cstring>

#include "core/host_access.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

using core::Tensor;

constexpr sluice_dtype kFloat64{2, 64};

/// Element (index..) of a floating view.
template <class... Index>
double load(const Tensor& view, Index... index) noexcept {
  const void* source = core::address(view, index...);
  if (core::same(view.dtype, kFloat64)) {
    double value;
    std::memcpy(&value, source, sizeof value);
    return value;
  }
  return static_cast<double>(core::load_float(source, view.dtype));
}

/// `value` as a float that store_float() turns into the nearest element of `dtype`.
inline float for_storage(sluice_dtype dtype, double value) noexcept {
  return core::same(dtype, core::kFloat32) ? static_cast<float>(value)
                                           : core::float_to_odd_from_double(value);
}

/// Element (index..) = value, rounded once to the view's dtype, to nearest even.
template <class... Index>
void store(const Tensor& view, double value, Index... index) noexcept {
  void* target = core::address(view, index...);
  if (core::same(view.dtype, kFloat64)) {
    std::memcpy(target, &value, sizeof value);
    return;
  }
  core::store_float(target, view.dtype, for_storage(view.dtype, value));
}

/// A dense float64 view [B, T, ..] of scratch memory.
template <class... Size>
Tensor dense_view(double* data, Size... sizes) noexcept {
  return core::dense_view(data, kFloat64, {sizes...});
}

/// `value` after a trip through an element of `dtype`.
inline double round_to(sluice_dtype dtype, double value) noexcept {
  if (core::same(dtype, kFloat64)) return value;
  float element = 0;
  core::store_float(&element, dtype, for_storage(dtype, value));
  return static_cast<double>(core::load_float(&element, dtype));
}

/// S <- the state of head h in a pool's slot, in either layout; zeros without a pool or with slot -1.
inline void load_state(const Tensor& pool, int32_t layout, int64_t slot, int64_t h,
                       Matrix S) noexcept {
  const bool kv = layout == SLUICE_STATE_KV, there = core::present(pool) && slot >= 0;
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) {
      S(i, j) = there ? load(pool, slot, h, kv ? i : j, kv ? j : i) : 0.0;
    }
  }
}

inline void store_state(const Tensor& pool, int32_t layout, int64_t slot, int64_t h,
                        Matrix S) noexcept {
  const bool kv = layout == SLUICE_STATE_KV;
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) store(pool, S(i, j), slot, h, kv ? i : j, kv ? j : i);
  }
}

}  // namespace sluice::ref

#endif  // SLUICE_REF_ACCESS_HPP_
