// Multiplies small dense float32 matrices, a register tile at a time, for the stages of the chunk
// form: rows and depth of any size, columns padded to whole tiles.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STAGE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STAGE_TILES_INL_H_
#undef SLUICE_CPU_KERNELS_STAGE_TILES_INL_H_
#else
#define SLUICE_CPU_KERNELS_STAGE_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/chunk_stage.hpp"
#include "cpu/kernels/chunk_tiles-inl.h"
#include "cpu/kernels/gates-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kStageColumns % kTileColumns == 0);

/// Element (r, i) of a left operand is data[r * row + i * step].
struct LeftMatrix {
  const float* data;
  int64_t row, step;
};

/// Row-major matrices of a product.
struct RightMatrix {
  const float* data;
  int64_t stride;
};
struct OutMatrix {
  float* data;
  int64_t stride;
};

/// What becomes of a product.
enum class Into { kSet, kAdd, kSubtract };

/// out[r][c] (set, +=, -=) sum over i < depth of left(r, i) right[i][c], for one tile whose first
/// row is `first`. kLower: i <= first + r in place of i < depth.
template <size_t kRows, bool kLower>
HWY_INLINE void product_tile(LeftMatrix left, RightMatrix right, int64_t first, int64_t depth,
                             Into into, float* HWY_RESTRICT out, int64_t out_stride) {
  const FloatTag d;
  FloatVec sum[kRows][kTileVectors];
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) sum[r][c] = hn::Zero(d);
  }
  const float* HWY_RESTRICT factors = left.data + first * left.row;
  const float* HWY_RESTRICT row = right.data;
  const auto step = [&](size_t from) HWY_ATTR {
    FloatVec value[kTileVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) value[c] = hn::LoadU(d, row + c * kTileLanes);
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      if (r < from) continue;
      const auto factor = hn::Set(d, factors[static_cast<int64_t>(r) * left.row]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kTileVectors; ++c) {
        sum[r][c] = hn::MulAdd(factor, value[c], sum[r][c]);
      }
    }
    factors += left.step;
    row += right.stride;
  };
  for (int64_t i = 0; i < (kLower ? first : depth); ++i) step(0);
  if constexpr (kLower) {
    // WHY rows from j on: a later token may be NaN, and zeros above the diagonal would not stop it.
    SLUICE_UNROLL
    for (size_t j = 0; j < kRows; ++j) step(j);
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      float* const to = out + static_cast<int64_t>(r) * out_stride + c * kTileLanes;
      auto value = sum[r][c];
      if (into == Into::kAdd) value = hn::Add(hn::LoadU(d, to), value);
      if (into == Into::kSubtract) value = hn::Sub(hn::LoadU(d, to), value);
      hn::StoreU(value, d, to);
    }
  }
}

/// out (set, +=, -=) left right for `rows` rows (a multiple of kSmallRows) and `columns` columns (a
/// multiple of kStageColumns). kLower: left is lower triangular with its diagonal, whatever lies
/// above. kLowerOut: only entries on and below the diagonal are wanted.
template <bool kLower, bool kLowerOut = false>
HWY_NOINLINE void product(LeftMatrix left, RightMatrix right, int64_t rows, int64_t columns,
                          int64_t depth, Into into, OutMatrix out) {
  for (int64_t column = 0; column < columns; column += kTileColumns) {
    const RightMatrix panel{right.data + column, right.stride};
    cover_rows(rows, [&](int64_t first, auto tile_rows) HWY_ATTR {
      constexpr size_t kRows = tile_rows.value;
      if (kLowerOut && first + static_cast<int64_t>(kRows) <= column) return;
      product_tile<kRows, kLower>(left, panel, first, depth, into,
                                  out.data + first * out.stride + column, out.stride);
    });
  }
}

/// The same of an upper triangular left operand with its diagonal, below which there are zeros.
inline HWY_NOINLINE void upper_product(LeftMatrix left, RightMatrix right, int64_t rows,
                                       int64_t columns, int64_t depth, Into into, OutMatrix out) {
  for (int64_t column = 0; column < columns; column += kTileColumns) {
    cover_rows(rows, [&](int64_t first, auto tile_rows) HWY_ATTR {
      const LeftMatrix from{left.data + first * left.step, left.row, left.step};
      const RightMatrix panel{right.data + first * right.stride + column, right.stride};
      product_tile<tile_rows.value, false>(from, panel, first, depth - first, into,
                                           out.data + first * out.stride + column, out.stride);
    });
  }
}

/// exp(x) for any x: infinite past float32's range, NaN kept.
HWY_INLINE FloatVec exp_any(FloatVec x) {
  const FloatTag d;
  const auto limit = hn::Set(d, 88.7228394f);  // exp of the next float overflows
  const auto bounded = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  const auto value = keep_nan(x, hn::Exp(d, bounded));
  return hn::IfThenElse(hn::Gt(x, limit), hn::Set(d, HUGE_VALF), value);
}

/// to[c] *= factor for c < count, a multiple of the lanes.
HWY_INLINE void scale_row(float factor, int64_t count, float* HWY_RESTRICT to) {
  const FloatTag d;
  const auto by = hn::Set(d, factor);
  for (int64_t c = 0; c < count; c += static_cast<int64_t>(kTileLanes)) {
    hn::StoreU(hn::Mul(by, hn::LoadU(d, to + c)), d, to + c);
  }
}

/// Sums of log gates inside a chunk, each as a pair of floats.
struct DecaySums {
  const float *high, *low;
};

/// until_i = exp(G_i) and since_i = exp(G_n - G_i) for i < count, a multiple of the lanes.
HWY_INLINE void decay_ends(DecaySums G, int64_t n, int64_t count, float* HWY_RESTRICT until,
                           float* HWY_RESTRICT since) {
  const FloatTag d;
  const auto last_high = hn::Set(d, G.high[n - 1]), last_low = hn::Set(d, G.low[n - 1]);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(kTileLanes)) {
    const auto high = hn::LoadU(d, G.high + i), low = hn::LoadU(d, G.low + i);
    hn::StoreU(exp_any(hn::Add(high, low)), d, until + i);
    const auto rest = hn::Add(hn::Sub(last_high, high), hn::Sub(last_low, low));
    hn::StoreU(exp_any(rest), d, since + i);
  }
}

/// to_ij = factor_i exp(G_i - G_j) from_ij for j < i + columns_on, else 0, `rows` rows of `stride`
/// columns; columns_on is 0 below the diagonal, 1 with it.
HWY_INLINE void decayed_products(DecaySums G, const float* factor, int64_t rows, int64_t columns_on,
                                 int64_t stride, const float* from, float* to) {
  const FloatTag d;
  for (int64_t i = 0; i < rows; ++i, from += stride, to += stride) {
    const auto by = hn::Set(d, factor[i]);
    const auto high = hn::Set(d, G.high[i]), low = hn::Set(d, G.low[i]);
    const auto end = hn::Set(d, static_cast<float>(i + columns_on));
    for (int64_t j = 0; j < stride; j += static_cast<int64_t>(kTileLanes)) {
      auto value = hn::Zero(d);
      if (j < i + columns_on) {
        const auto rest =
            hn::Add(hn::Sub(high, hn::LoadU(d, G.high + j)), hn::Sub(low, hn::LoadU(d, G.low + j)));
        value = hn::Mul(by, hn::Mul(exp_any(rest), hn::LoadU(d, from + j)));
        const auto column = hn::Iota(d, static_cast<float>(j));
        value = hn::IfThenElse(hn::Lt(column, end), value, hn::Zero(d));
      }
      hn::StoreU(value, d, to + j);
    }
  }
}

/// Row i of X: e_i - sum over first <= j < i of A_ij row j, on top of what it holds.
HWY_INLINE void substitute(const float* A, int64_t stride, int64_t first, int64_t i, float* X) {
  const FloatTag d;
  float* const row = X + i * stride;
  row[i] += 1.0f;
  for (int64_t j = first; j < i; ++j) {
    const float* const other = X + j * stride;
    const auto factor = hn::Set(d, A[i * stride + j]);
    for (int64_t c = 0; c <= j; c += static_cast<int64_t>(kTileLanes)) {
      hn::StoreU(hn::NegMulAdd(factor, hn::LoadU(d, other + c), hn::LoadU(d, row + c)), d, row + c);
    }
  }
}

/// X = (I + A)^-1 of n rows by blocks: what lies above a block of rows is a product, the block
/// itself is substituted forward. A is strictly lower; rows of both up to a multiple of kSmallRows.
inline HWY_NOINLINE void invert_unit_lower(const float* A, int64_t n, int64_t stride, float* X) {
  constexpr int64_t kSolveRows = 16;
  for (int64_t first = 0; first < n; first += kSolveRows) {
    const int64_t most = round_up(n, static_cast<int64_t>(kSmallRows)) - first;
    const int64_t rows = std::min(kSolveRows, most);
    float* const block = X + first * stride;
    std::fill(block, block + rows * stride, 0.0f);
    product<false>({A + first * stride, stride, 1}, {X, stride}, rows,
                   round_up(first, kStageColumns), first, Into::kSubtract, {block, stride});
    for (int64_t i = first; i < std::min(first + kSolveRows, n); ++i) {
      substitute(A, stride, first, i, X);
    }
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STAGE_TILES_INL_H_
