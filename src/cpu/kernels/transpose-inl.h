// Transposes narrow matrices [channels][2..4] to and from float32 columns [2..4][channels]
// (compiled once for each instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_TRANSPOSE_INL_H_
#undef SLUICE_CPU_KERNELS_TRANSPOSE_INL_H_
#else
#define SLUICE_CPU_KERNELS_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/convert-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Widest convolution, and most columns of a matrix that moves as a whole.
constexpr int64_t kMaxWidth = 4;
/// Channels of one block: a tile of 16 rows is 19 KB, so that it and the weights stay in L1.
constexpr int64_t kConvChannels = 256;

/// A matrix in memory: element (c, w) at c * row_stride + w * column_stride.
struct MatrixShape {
  int64_t rows, row_stride, columns, column_stride;

  /// Rows of 2 to 4 columns without gaps, the order that interleaved loads and stores take apart.
  bool packed() const noexcept {
    return column_stride == 1 && row_stride == columns && columns >= 2 && columns <= kMaxWidth;
  }
};

/// columns[w * stride + c] = packed[c * width + w].
inline void unpack_columns(const float* packed, int64_t width, int64_t count, float* columns,
                           int64_t stride) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  hn::Vec<FloatTag> v0, v1, v2, v3;
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    const float* source = packed + c * width;
    if (width == 2) {
      hn::LoadInterleaved2(d, source, v0, v1);
    } else if (width == 3) {
      hn::LoadInterleaved3(d, source, v0, v1, v2);
    } else {
      hn::LoadInterleaved4(d, source, v0, v1, v2, v3);
    }
    hn::StoreU(v0, d, columns + c);
    hn::StoreU(v1, d, columns + stride + c);
    if (width > 2) hn::StoreU(v2, d, columns + 2 * stride + c);
    if (width > 3) hn::StoreU(v3, d, columns + 3 * stride + c);
  }
  for (; c < count; ++c) {
    for (int64_t w = 0; w < width; ++w) columns[w * stride + c] = packed[c * width + w];
  }
}

/// The inverse.
inline void join_columns(const float* columns, int64_t stride, int64_t width, int64_t count,
                         float* packed) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    float* target = packed + c * width;
    const auto v0 = hn::LoadU(d, columns + c), v1 = hn::LoadU(d, columns + stride + c);
    if (width == 2) {
      hn::StoreInterleaved2(v0, v1, d, target);
    } else if (width == 3) {
      hn::StoreInterleaved3(v0, v1, hn::LoadU(d, columns + 2 * stride + c), d, target);
    } else {
      hn::StoreInterleaved4(v0, v1, hn::LoadU(d, columns + 2 * stride + c),
                            hn::LoadU(d, columns + 3 * stride + c), d, target);
    }
  }
  for (; c < count; ++c) {
    for (int64_t w = 0; w < width; ++w) packed[c * width + w] = columns[w * stride + c];
  }
}

/// columns[w * stride + c] = element (c, w) of the matrix at `source`, at most kConvChannels rows.
inline void read_matrix(const void* source, sluice_dtype dtype, const MatrixShape& shape,
                        float* columns, int64_t stride) noexcept {
  if (shape.packed()) {
    HWY_ALIGN float packed[kMaxWidth * kConvChannels];
    read_dense(source, dtype, shape.rows * shape.columns, packed);
    return unpack_columns(packed, shape.columns, shape.rows, columns, stride);
  }
  for (int64_t w = 0; w < shape.columns; ++w) {
    const int64_t bytes = w * shape.column_stride * core::element_size(dtype);
    read_strided(static_cast<const std::byte*>(source) + bytes, dtype, shape.row_stride, shape.rows,
                 columns + w * stride);
  }
}

/// The inverse, rounded once to nearest even.
inline void write_matrix(const float* columns, int64_t stride, void* target, sluice_dtype dtype,
                         const MatrixShape& shape) noexcept {
  if (shape.packed()) {
    HWY_ALIGN float packed[kMaxWidth * kConvChannels];
    join_columns(columns, stride, shape.columns, shape.rows, packed);
    return write_dense(packed, shape.rows * shape.columns, target, dtype);
  }
  for (int64_t w = 0; w < shape.columns; ++w) {
    const int64_t bytes = w * shape.column_stride * core::element_size(dtype);
    write_strided(columns + w * stride, shape.rows, static_cast<std::byte*>(target) + bytes, dtype,
                  shape.row_stride);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_TRANSPOSE_INL_H_
