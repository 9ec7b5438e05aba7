// Panels: a few columns (value dimensions) of one head's state as a contiguous float32 block
// [K][width], whatever the state's dtype and layout. Kernels work on panels only, so kv and vk
// layouts give the same bits.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_
#undef SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_
#else
#define SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/convert-inl.h"
#include "cpu/kernels/size_limits.hpp"
#include "hwy/highway.h"
#include "sluice/sluice.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatVec = hn::Vec<FloatTag>;

/// The element `index` places after `base`.
HWY_INLINE const void* element_at(const void* base, sluice_dtype dtype, int64_t index) {
  return static_cast<const std::byte*>(base) + index * core::element_size(dtype);
}
HWY_INLINE void* element_at(void* base, sluice_dtype dtype, int64_t index) {
  return static_cast<std::byte*>(base) + index * core::element_size(dtype);
}

/// to[c * to_stride + r] = from[r * from_stride + c] for r < 4, c < 4.
HWY_INLINE void transpose_4x4(const float* HWY_RESTRICT from, int64_t from_stride,
                              float* HWY_RESTRICT to, int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 4; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
#else
  const hn::Full128<float> d;
  const hn::Full128<double> dd;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * to_stride);
#endif
}

/// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns.
HWY_INLINE void transpose(const float* HWY_RESTRICT from, int64_t rows, int64_t columns,
                          int64_t from_stride, float* HWY_RESTRICT to, int64_t to_stride) {
  const int64_t whole_rows = rows / 4 * 4;
  const int64_t whole_columns = columns / 4 * 4;
  for (int64_t c = 0; c < whole_columns; c += 4) {
    for (int64_t r = 0; r < whole_rows; r += 4) {
      transpose_4x4(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t first = r < whole_rows ? whole_columns : 0;
    for (int64_t c = first; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

/// Columns of a state that a panel holds: `columns` real ones from `first`, then zeros up to
/// `width`.
struct PanelColumns {
  int64_t first, columns, width;
};

constexpr int64_t kMaxPanelRows = kMaxHeadDim;  // BOUND: K <= 256, see check_size_limits()

/// Fills panel [K][width] from one head's state; a null state is all zeros.
HWY_INLINE void load_panel(const void* state, sluice_dtype dtype, sluice_state_layout layout,
                           int64_t K, int64_t V, PanelColumns at, float* HWY_RESTRICT panel) {
  if (state == nullptr || at.columns < at.width) {
    std::memset(panel, 0, static_cast<size_t>(K * at.width) * sizeof(float));
    if (state == nullptr) return;
  }
  if (layout == SLUICE_STATE_KV) {
    for (int64_t k = 0; k < K; ++k) {
      read_dense(element_at(state, dtype, k * V + at.first), dtype, at.columns,
                 panel + k * at.width);
    }
    return;
  }
  if (core::same(dtype, core::kFloat32)) {
    transpose(static_cast<const float*>(state) + at.first * K, at.columns, K, K, panel, at.width);
    return;
  }
  float rows[4 * kMaxPanelRows];
  for (int64_t c = 0; c < at.columns; c += 4) {
    const int64_t count = std::min<int64_t>(4, at.columns - c);
    read_dense(element_at(state, dtype, (at.first + c) * K), dtype, count * K, rows);
    transpose(rows, count, K, K, panel + c, at.width);
  }
}

/// Writes the panel's real columns into one head's state, rounded once.
HWY_INLINE void store_panel(const float* HWY_RESTRICT panel, sluice_dtype dtype,
                            sluice_state_layout layout, int64_t K, int64_t V, PanelColumns at,
                            void* state) {
  if (layout == SLUICE_STATE_KV) {
    for (int64_t k = 0; k < K; ++k) {
      write_dense(panel + k * at.width, at.columns, element_at(state, dtype, k * V + at.first),
                  dtype);
    }
    return;
  }
  if (core::same(dtype, core::kFloat32)) {
    transpose(panel, K, at.columns, at.width, static_cast<float*>(state) + at.first * K, K);
    return;
  }
  float rows[4 * kMaxPanelRows];
  for (int64_t c = 0; c < at.columns; c += 4) {
    const int64_t count = std::min<int64_t>(4, at.columns - c);
    transpose(panel + c, K, count, at.width, rows, K);
    write_dense(rows, count * K, element_at(state, dtype, (at.first + c) * K), dtype);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_
