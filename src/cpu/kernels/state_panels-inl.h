// Moves panels: a few columns (value dimensions) of one head's state as a contiguous float32 block
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
#include <type_traits>

#include "cpu/kernels/convert-inl.h"
#include "cpu/kernels/size_limits.hpp"
#include "cpu/kernels/unroll.hpp"
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

#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kTransposeRows = 4;
#else
constexpr int64_t kTransposeRows = static_cast<int64_t>(HWY_LANES(float));

/// Four floats of every fourth row, a row in each 128-bit block: rows 0, 4, 8, ..
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* HWY_RESTRICT from, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const int64_t next = stride * static_cast<int64_t>(hn::Lanes(half));
    return hn::Combine(d, load_blocks(half, from + next, stride), load_blocks(half, from, stride));
  }
}

/// columns[c] = element c of each of kTransposeRows rows.
HWY_INLINE void load_transposed(const float* HWY_RESTRICT from, int64_t stride,
                                FloatVec (&columns)[4]) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> dd;
  const auto r0 = load_blocks(d, from, stride);
  const auto r1 = load_blocks(d, from + stride, stride);
  const auto r2 = load_blocks(d, from + 2 * stride, stride);
  const auto r3 = load_blocks(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
}
#endif

/// to[c * to_stride + r] = from[r * from_stride + c] for r < kTransposeRows, c < 4.
HWY_INLINE void transpose_tile(const float* HWY_RESTRICT from, int64_t from_stride,
                               float* HWY_RESTRICT to, int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < kTransposeRows; ++r) {
    for (int64_t c = 0; c < 4; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
#else
  FloatVec columns[4];
  load_transposed(from, from_stride, columns);
  SLUICE_UNROLL
  for (size_t c = 0; c < 4; ++c) {
    hn::StoreU(columns[c], FloatTag(), to + static_cast<int64_t>(c) * to_stride);
  }
#endif
}

/// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns.
HWY_INLINE void transpose(const float* HWY_RESTRICT from, int64_t rows, int64_t columns,
                          int64_t from_stride, float* HWY_RESTRICT to, int64_t to_stride) {
  const int64_t whole_rows = rows / kTransposeRows * kTransposeRows;
  const int64_t whole_columns = columns / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += kTransposeRows) {
    for (int64_t c = 0; c < whole_columns; c += 4) {
      transpose_tile(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t first = r < whole_rows ? whole_columns : 0;
    for (int64_t c = first; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

/// Elements of states in memory: float32, bfloat16 as its bits, float16 as Highway's type.
HWY_INLINE FloatVec load_vector(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatVec load_vector(const uint16_t* from) { return float_from_bfloat16(from); }
HWY_INLINE void store_vector(FloatVec value, float* to) { hn::StoreU(value, FloatTag(), to); }
HWY_INLINE void store_vector(FloatVec value, uint16_t* to) { bfloat16_from_float(value, to); }
HWY_INLINE FloatVec load_vector(const hwy::float16_t* from) {
  return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<hwy::float16_t, FloatTag>(), from));
}
HWY_INLINE void store_vector(FloatVec value, hwy::float16_t* to) {
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  hn::StoreU(hn::DemoteTo(d16, value), d16, to);
}

/// Calls function(elements) with `address` as a pointer to elements that load_vector() takes.
/// Returns false, without a call, for a dtype that this instruction set has no vectors for.
template <class Void, class Function>
HWY_INLINE bool with_elements(Void* address, sluice_dtype dtype, Function function) {
  const auto call = [&](auto element) HWY_ATTR {
    using Element = decltype(element);
    using Pointer = std::conditional_t<std::is_const_v<Void>, const Element*, Element*>;
    function(static_cast<Pointer>(address));
  };
  if (core::same(dtype, core::kFloat32)) {
    call(float{});
  } else if (core::same(dtype, core::kBFloat16)) {
    call(uint16_t{});
  } else if constexpr (kFloat16Vectors) {
    call(hwy::float16_t{});
  } else {
    return false;
  }
  return true;
}

/// to[r][c] = from[r][c] for c < width, a multiple of the lanes.
template <class From, class To>
HWY_INLINE void copy_rows(const From* HWY_RESTRICT from, int64_t from_stride, int64_t rows,
                          int64_t width, To* HWY_RESTRICT to, int64_t to_stride) {
  constexpr int64_t kStep = static_cast<int64_t>(HWY_LANES(float));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; c += kStep) {
      store_vector(load_vector(from + r * from_stride + c), to + r * to_stride + c);
    }
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
    if (at.columns == at.width &&
        with_elements(element_at(state, dtype, at.first), dtype, [&](const auto* from) HWY_ATTR {
          copy_rows(from, V, K, at.width, panel, at.width);
        })) {
      return;
    }
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
  float rows[kTransposeRows * kMaxPanelRows];
  for (int64_t c = 0; c < at.columns; c += kTransposeRows) {
    const int64_t count = std::min(kTransposeRows, at.columns - c);
    read_dense(element_at(state, dtype, (at.first + c) * K), dtype, count * K, rows);
    transpose(rows, count, K, K, panel + c, at.width);
  }
}

/// Writes the panel's real columns into one head's state, rounded once.
HWY_INLINE void store_panel(const float* HWY_RESTRICT panel, sluice_dtype dtype,
                            sluice_state_layout layout, int64_t K, int64_t V, PanelColumns at,
                            void* state) {
  if (layout == SLUICE_STATE_KV) {
    if (at.columns == at.width &&
        with_elements(element_at(state, dtype, at.first), dtype,
                      [&](auto* to) HWY_ATTR { copy_rows(panel, at.width, K, at.width, to, V); })) {
      return;
    }
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
  float rows[kTransposeRows * kMaxPanelRows];
  for (int64_t c = 0; c < at.columns; c += kTransposeRows) {
    const int64_t count = std::min(kTransposeRows, at.columns - c);
    transpose(panel + c, K, count, at.width, rows, K);
    write_dense(rows, count * K, element_at(state, dtype, (at.first + c) * K), dtype);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STATE_PANELS_INL_H_
