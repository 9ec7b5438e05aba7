// Computes the tiles of chunk_forward: kRows tokens (or state rows) by kTileVectors vectors of
// columns, kept in registers from the products over k to the store.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_TILES_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_TILES_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_TILES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/chunk_rows.hpp"
#include "cpu/kernels/convert-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatVec = hn::Vec<FloatTag>;

constexpr size_t kTileLanes = HWY_LANES(float);

// Rows and vectors of a tile: accumulators, one row of columns and a broadcast must fit the
// registers (32 in AVX-512 and NEON, 16 else), with at least 8 accumulators to hide the latency.
#if HWY_TARGET == HWY_AVX3
constexpr size_t kTileRows = 8, kTileVectors = 2;
#elif HWY_TARGET == HWY_NEON
constexpr size_t kTileRows = 6, kTileVectors = 4;
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr size_t kTileRows = 4, kTileVectors = 2;
#else
constexpr size_t kTileRows = 6, kTileVectors = 2;
#endif
constexpr size_t kSmallRows = 4;  ///< what is left of a chunk by kTileRows is done by these
constexpr int64_t kTileColumns = static_cast<int64_t>(kTileVectors * kTileLanes);
static_assert(kColumnStep % kTileColumns == 0);

/// Vectors of a tile of token-by-token products, at most a chunk wide.
constexpr size_t kProductVectors =
    kTileColumns <= kChunk ? kTileVectors : static_cast<size_t>(kChunk) / kTileLanes;
constexpr int64_t kProductColumns = static_cast<int64_t>(kProductVectors * kTileLanes);

/// Calls tile(row, rows) with rows = kTileRows or kSmallRows (as a constant) until `total`, a
/// multiple of kSmallRows, is covered.
template <class TileFunction>
HWY_INLINE void cover_rows(int64_t total, TileFunction tile) {
  for (int64_t row = 0; row < total;) {
    if ((total - row) % static_cast<int64_t>(kTileRows) == 0) {
      tile(row, std::integral_constant<size_t, kTileRows>());
      row += static_cast<int64_t>(kTileRows);
    } else {
      tile(row, std::integral_constant<size_t, kSmallRows>());
      row += static_cast<int64_t>(kSmallRows);
    }
  }
}

/// sum[r][c] = sum over i < K of left[i * kChunk + r] * right[i * right_stride + column c].
template <size_t kRows, size_t kVectors, class D = FloatTag>
HWY_INLINE void multiply(const float* HWY_RESTRICT left, const float* HWY_RESTRICT right,
                         int64_t right_stride, int64_t K, hn::Vec<D> (&sum)[kRows][kVectors]) {
  const D d;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) sum[r][c] = hn::Zero(d);
  }
  for (int64_t i = 0; i < K; ++i) {
    hn::Vec<D> row[kVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) row[c] = hn::LoadU(d, right + c * hn::MaxLanes(d));
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, left[r]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kVectors; ++c) sum[r][c] = hn::MulAdd(factor, row[c], sum[r][c]);
    }
    left += kChunk;
    right += right_stride;
  }
}

/// One chunk of one value head.
struct HeadChunk {
  int64_t n;     ///< tokens
  int64_t rows;  ///< n up to a multiple of kSmallRows
  int64_t K;
  bool delta_rule;
  const float* k_rows;  ///< [n][k_stride]: what is written; key-wise gates: decayed to the end
  int64_t k_stride;
  const float* decay;  ///< [K up to whole tiles]: exp(G_n)
  const float* k_t;    ///< [K][kChunk]: what is read; key-wise gates: decayed from the start
  const float* q_t;
  const float* A;  ///< strictly lower: beta_i Gamma_ij (k_i . k_j)
  const float* P;  ///< lower: Gamma_ij (q_i . k_j)
  HeadFactors factors;
  float* x;  ///< [rows][x_stride]: the corrected values
  int64_t x_stride;
  RowsAhead ahead;  ///< fetched meanwhile
  float* xe;        ///< [n][kTileColumns]: E_i x_i of one panel
};

/// Rows of v or o: row t at `first + t * stride`.
template <class Element>
struct PanelRows {
  Element* first;
  int64_t stride;
  HWY_INLINE Element* row(int64_t t) const { return first + t * stride; }
};

/// tile += matrix x, or -= it, of the tokens before `first`: row r of the tile is token first + r.
template <bool kSubtract, size_t kRows>
HWY_INLINE void add_earlier(const HeadChunk& chunk, const float* HWY_RESTRICT matrix, int64_t first,
                            const float* HWY_RESTRICT x, FloatVec (&tile)[kRows][kTileVectors]) {
  const FloatTag d;
  for (int64_t j = 0; j < first; ++j) {
    FloatVec value[kTileVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      value[c] = hn::LoadU(d, x + j * chunk.x_stride + c * kTileLanes);
    }
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const auto by = hn::Set(d, matrix[static_cast<int64_t>(r) * kChunk + j]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kTileVectors; ++c) {
        tile[r][c] = kSubtract ? hn::NegMulAdd(by, value[c], tile[r][c])
                               : hn::MulAdd(by, value[c], tile[r][c]);
      }
    }
  }
}

/// x_i = beta_i (v_i - D_i S^T k_i) - sum over j < i of A_ij x_j, for kRows tokens from `first`;
/// and xe.
template <size_t kRows, class Element>
HWY_INLINE void solve_rows(const HeadChunk& chunk, const float* HWY_RESTRICT panel, int64_t first,
                           PanelRows<const Element> v, float* HWY_RESTRICT x) {
  const FloatTag d;
  FloatVec tile[kRows][kTileVectors];
  multiply<kRows, kTileVectors>(chunk.k_t + first, panel, kTileColumns, chunk.K, tile);
  float* HWY_RESTRICT out = x + first * chunk.x_stride;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const float beta = chunk.factors.beta[static_cast<size_t>(first) + r];
    const auto weight = hn::Set(d, beta);
    const auto decayed = hn::Set(d, beta * chunk.factors.D[static_cast<size_t>(first) + r]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      const auto value = load_vector(v.row(first + static_cast<int64_t>(r)) + c * kTileLanes);
      tile[r][c] = hn::NegMulAdd(decayed, tile[r][c], hn::Mul(weight, value));
    }
  }
  const float* HWY_RESTRICT A = chunk.A + first * kChunk;
  add_earlier<true>(chunk, A, first, x, tile);
  A += first;
  SLUICE_UNROLL
  for (size_t j = 0; j + 1 < kRows; ++j) {
    SLUICE_UNROLL
    for (size_t r = j + 1; r < kRows; ++r) {
      const auto a = hn::Set(d, A[r * static_cast<size_t>(kChunk) + j]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kTileVectors; ++c) {
        tile[r][c] = hn::NegMulAdd(a, tile[j][c], tile[r][c]);
      }
    }
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const auto weight = hn::Set(d, chunk.factors.E[static_cast<size_t>(first) + r]);
    float* HWY_RESTRICT weighted = chunk.xe + (first + static_cast<int64_t>(r)) * kTileColumns;
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      hn::StoreU(tile[r][c], d, out + static_cast<int64_t>(r) * chunk.x_stride + c * kTileLanes);
      hn::StoreU(hn::Mul(weight, tile[r][c]), d, weighted + c * kTileLanes);
    }
  }
}

/// xe of values that need no solving.
HWY_INLINE void weigh_rows(const HeadChunk& chunk, const float* HWY_RESTRICT x) {
  const FloatTag d;
  for (int64_t j = 0; j < chunk.n; ++j) {
    const auto weight = hn::Set(d, chunk.factors.E[j]);
    for (size_t c = 0; c < kTileVectors; ++c) {
      const auto value = hn::LoadU(d, x + j * chunk.x_stride + c * kTileLanes);
      hn::StoreU(hn::Mul(weight, value), d, chunk.xe + j * kTileColumns + c * kTileLanes);
    }
  }
}

/// o_i = D_i S^T q_i + sum over j <= i of P_ij x_j, for kRows tokens from `first`.
template <size_t kRows, class Element>
HWY_INLINE void output_rows(const HeadChunk& chunk, const float* HWY_RESTRICT panel, int64_t first,
                            const float* HWY_RESTRICT x, PanelRows<Element> o) {
  const FloatTag d;
  FloatVec tile[kRows][kTileVectors];
  multiply<kRows, kTileVectors>(chunk.q_t + first, panel, kTileColumns, chunk.K, tile);
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const auto decay = hn::Set(d, chunk.factors.D[static_cast<size_t>(first) + r]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) tile[r][c] = hn::Mul(decay, tile[r][c]);
  }
  const float* HWY_RESTRICT P = chunk.P + first * kChunk;
  add_earlier<false>(chunk, P, first, x, tile);
  P += first;
  x += first * chunk.x_stride;
  SLUICE_UNROLL
  for (size_t j = 0; j < kRows; ++j) {
    FloatVec value[kTileVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      value[c] = hn::LoadU(d, x + static_cast<int64_t>(j) * chunk.x_stride + c * kTileLanes);
    }
    // WHY r from j: a later token's x may be NaN, and zeros above the diagonal would not stop it.
    SLUICE_UNROLL
    for (size_t r = j; r < kRows; ++r) {
      const auto p = hn::Set(d, P[r * static_cast<size_t>(kChunk) + j]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kTileVectors; ++c) {
        tile[r][c] = hn::MulAdd(p, value[c], tile[r][c]);
      }
    }
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      store_vector(tile[r][c], o.row(first + static_cast<int64_t>(r)) + c * kTileLanes);
    }
  }
}

/// S <- diag(decay) S + sum over j < n of k_j (E_j x_j)^T, for kRows rows of S from `first`.
template <size_t kRows>
HWY_INLINE void update_rows(const HeadChunk& chunk, float* HWY_RESTRICT panel, int64_t first) {
  const FloatTag d;
  FloatVec tile[kRows][kTileVectors];
  float* HWY_RESTRICT rows = panel + first * kTileColumns;
  const float* HWY_RESTRICT const decays = chunk.decay + first;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const auto decay = hn::Set(d, decays[r]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      tile[r][c] = hn::Mul(decay, hn::LoadU(d, rows + (r * kTileVectors + c) * kTileLanes));
    }
  }
  const float* HWY_RESTRICT k = chunk.k_rows + first;
  const float* HWY_RESTRICT xe = chunk.xe;
  for (int64_t j = 0; j < chunk.n; ++j) {
    FloatVec value[kTileVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) value[c] = hn::LoadU(d, xe + c * kTileLanes);
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, k[r]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kTileVectors; ++c) {
        tile[r][c] = hn::MulAdd(factor, value[c], tile[r][c]);
      }
    }
    k += chunk.k_stride;
    xe += kTileColumns;
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kTileVectors; ++c) {
      hn::StoreU(tile[r][c], d, rows + (r * kTileVectors + c) * kTileLanes);
    }
  }
}

/// One chunk on one panel [K][kTileColumns] of the state, `column` columns into x; v and o at the
/// panel's columns.
template <class Element>
HWY_NOINLINE void advance_panel(const HeadChunk& chunk, PanelRows<const Element> v,
                                PanelRows<Element> o, int64_t column, float* panel) {
  float* const x = chunk.x + column;
  if (chunk.delta_rule) {
    cover_rows(chunk.rows, [&](int64_t first, auto rows) HWY_ATTR {
      solve_rows<rows.value, Element>(chunk, panel, first, v, x);
    });
  } else {
    weigh_rows(chunk, x);
  }
  cover_rows(chunk.rows, [&](int64_t first, auto rows) HWY_ATTR {
    output_rows<rows.value, Element>(chunk, panel, first, x, o);
  });
  const int64_t index = column / kTileColumns;
  const RowsAhead& ahead = chunk.ahead;
  const int64_t K = round_up(chunk.K, static_cast<int64_t>(kSmallRows));
  int64_t fetched = 0;
  cover_rows(K, [&](int64_t first, auto rows) HWY_ATTR {
    const int64_t end = ahead.n * (first + static_cast<int64_t>(rows.value)) / K;
    fetch_rows(ahead, index, fetched, end);
    fetched = end;
    update_rows<rows.value>(chunk, panel, first);
  });
}

/// out[first + r][column..] for one tile of products.
template <size_t kRows, size_t kVectors, class D>
HWY_INLINE void product_rows(D d, const float* left, const float* right, int64_t K,
                             float* HWY_RESTRICT out) {
  hn::Vec<D> tile[kRows][kVectors];
  multiply<kRows, kVectors, D>(left, right, kChunk, K, tile);
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      hn::StoreU(tile[r][c], d, out + r * static_cast<size_t>(kChunk) + c * hn::MaxLanes(d));
    }
  }
}

/// out [rows][kChunk] = left^T right, both [K][kChunk], on and below the diagonal: the products
/// q_i . k_j or k_i . k_j. Other entries may stay what they were.
inline HWY_NOINLINE void token_products(const float* left, const float* right, int64_t K,
                                        int64_t rows, float* HWY_RESTRICT out) {
  constexpr bool kHalves = kProductColumns == kChunk && kProductVectors == 1;
  for (int64_t column = 0; column < rows; column += kProductColumns) {
    cover_rows(rows, [&](int64_t first, auto tile_rows) HWY_ATTR {
      constexpr size_t kRows = tile_rows.value;
      if (first + static_cast<int64_t>(kRows) <= column) return;
      float* const to = out + first * kChunk + column;
      if constexpr (kHalves) {
        if (first + static_cast<int64_t>(kRows) <= kChunk / 2) {
          return product_rows<kRows, 1>(hn::Half<FloatTag>(), left + first, right, K, to);
        }
      }
      product_rows<kRows, kProductVectors>(FloatTag(), left + first, right + column, K, to);
    });
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_TILES_INL_H_
