// Multiplies tiles in float32 for any dtype and stride, by a CTA of 256 threads: tiles of 64 rows
// and 32 columns, of which a thread has four rows and two columns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_PLAIN_PRODUCTS_CUH_
#define SLUICE_CUDA_DEVICE_PLAIN_PRODUCTS_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/stage_params.h"

namespace sluice::cuda::device {

inline constexpr int kPlainTerms = 16;  ///< in shared memory at a time

/// Operands of a tile's product.
struct PlainOperands {
  alignas(16) float left[kPlainTerms][kPlainRows + 4];
  alignas(16) float right[kPlainTerms][kPlainColumns + 2];
};

/// A thread's part of a tile.
struct PlainPart {
  float x[4][2];
  __device__ __forceinline__ static int row(int a) {
    return static_cast<int>(threadIdx.x) / 16 * 4 + a;
  }
  __device__ __forceinline__ static int column(int b) {
    return static_cast<int>(threadIdx.x) % 16 * 2 + b;
  }
  /// Calls use(row, column, number) for each.
  template <class Use>
  __device__ __forceinline__ void for_each(const Use& use) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
#pragma unroll
      for (int b = 0; b < 2; ++b) use(row(a), column(b), x[a][b]);
    }
  }
};

/// Which index of an operand is next to itself in memory: lanes of a warp go along it.
enum class Inner { kTerm, kOther };

/// sum += left right over `terms` terms. left(row, term) and right(term, column) are asked for rows
/// below 64, columns below 32, and terms below `terms`. All threads; the operands are free at the
/// end.
template <Inner kLeft, Inner kRight, class Left, class Right>
__device__ __forceinline__ void multiply_plain(PlainOperands& s, PlainPart* sum, int terms,
                                               const Left& left, const Right& right) {
#pragma unroll 1
  for (int first = 0; first < terms; first += kPlainTerms) {
#pragma unroll 1
    for (auto i = static_cast<int>(threadIdx.x); i < kPlainTerms * kPlainRows; i += kPlainThreads) {
      const int term = kLeft == Inner::kTerm ? i % kPlainTerms : i / kPlainRows;
      const int row = kLeft == Inner::kTerm ? i / kPlainTerms : i % kPlainRows;
      s.left[term][row] = first + term < terms ? left(row, first + term) : 0.0f;
    }
#pragma unroll 1
    for (auto i = static_cast<int>(threadIdx.x); i < kPlainTerms * kPlainColumns;
         i += kPlainThreads) {
      const int term = kRight == Inner::kTerm ? i % kPlainTerms : i / kPlainColumns;
      const int column = kRight == Inner::kTerm ? i / kPlainTerms : i % kPlainColumns;
      s.right[term][column] = first + term < terms ? right(first + term, column) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int term = 0; term < kPlainTerms; ++term) {
#pragma unroll
      for (int a = 0; a < 4; ++a) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          sum->x[a][b] = fmaf(s.left[term][PlainPart::row(a)], s.right[term][PlainPart::column(b)],
                              sum->x[a][b]);
        }
      }
    }
    __syncthreads();
  }
}

/// Element j of row `row` of a view; zero at columns from `columns` on, without a look.
__device__ __forceinline__ float row_number(const TokenRows& rows, int64_t start, int64_t column,
                                            int64_t columns) {
  return column < columns ? load_number(rows.data, start + column, rows.number) : 0.0f;
}

/// Stores a tile of rows first_row .. of a chunk and columns first_column .., those that exist.
__device__ __forceinline__ void store_tile(const TokenRows& rows, const Chunk& chunk, int64_t head,
                                           int first_row, int64_t first_column, int64_t columns,
                                           PlainPart* part) {
  part->for_each([&](int row, int column, float x) {
    if (first_row + row >= chunk.tokens || first_column + column >= columns) return;
    const int64_t to = at(rows, chunk.batch, chunk.row + first_row + row, head);
    store_number(rows.data, to + first_column + column, rows.number, x);
  });
}

/// Shared memory of the kernels of one chunk.
struct PlainMemory {
  PlainOperands operands;
  TokenNumbers numbers;
};

/// The product a . b of rows of q and k (or k and k) of two tiles of tokens.
__device__ __forceinline__ void multiply_keys(const StageParams& p, PlainOperands& s,
                                              const Chunk& chunk, int64_t head,
                                              const TokenRows& left, int row0, int column0,
                                              PlainPart* sum) {
  const int n = chunk.tokens;
  const auto from = [&](const TokenRows& rows, int token, int term) {
    return token < n ? row_number(rows, at(rows, chunk.batch, chunk.row + token, head), term, p.K)
                     : 0.0f;
  };
  multiply_plain<Inner::kTerm, Inner::kTerm>(
      s, sum, static_cast<int>(p.K),
      [&](int row, int term) { return from(left, row0 + row, term); },
      [&](int term, int column) { return from(p.k, column0 + column, term); });
}

/// sum over channels l of left_il exp(G_il - G_jl) k_jl of two tiles of tokens, for pairs with j <=
/// i < n; else 0. G is p.g_cumsum, key-wise. Half of the operands' terms are those of G.
__device__ __forceinline__ void multiply_decayed_keys(const StageParams& p, PlainOperands& s,
                                                      const Chunk& chunk, int64_t head,
                                                      const TokenRows& left, int row0, int column0,
                                                      PlainPart* sum) {
  constexpr int kHalf = kPlainTerms / 2;
  const int64_t keys = key_head(p, head);
  const auto put = [&](const TokenRows& rows, int from, int l, float* value, float* G) {
    const bool exists = from < chunk.tokens;
    const int64_t row = chunk.row + from;
    *value = exists ? row_number(rows, at(rows, chunk.batch, row, keys), l, p.K) : 0.0f;
    *G = exists ? row_number(p.g_cumsum, at(p.g_cumsum, chunk.batch, row, head), l, p.K) : 0.0f;
  };
#pragma unroll 1
  for (int first = 0; first < p.K; first += kHalf) {
    for (auto i = static_cast<int>(threadIdx.x); i < kHalf * kPlainRows; i += kPlainThreads) {
      const int term = i % kHalf, row = i / kHalf;
      put(left, row0 + row, first + term, &s.left[term][row], &s.left[term + kHalf][row]);
    }
    for (auto i = static_cast<int>(threadIdx.x); i < kHalf * kPlainColumns; i += kPlainThreads) {
      const int term = i % kHalf, column = i / kHalf;
      put(p.k, column0 + column, first + term, &s.right[term][column],
          &s.right[term + kHalf][column]);
    }
    __syncthreads();
#pragma unroll 1
    for (int term = 0; term < kHalf; ++term) {
      sum->for_each([&](int row, int column, float& x) {
        if (row0 + row < column0 + column || row0 + row >= chunk.tokens) return;
        const float decay = expf(s.left[term + kHalf][row] - s.right[term + kHalf][column]);
        x = fmaf(s.left[term][row] * decay, s.right[term][column], x);
      });
    }
    __syncthreads();
  }
}

/// One of u and w, of `columns` columns: out = inverse numbers; inverse(token, term) is asked for on
/// and below the diagonal, numbers(term, column) also past the columns.
template <class Inverse, class Numbers>
__device__ __forceinline__ void apply_inverse(PlainOperands& s, const Chunk& chunk, int64_t head,
                                              const TokenRows& out, int64_t columns,
                                              const Inverse& inverse, const Numbers& numbers) {
  for (int row0 = 0; row0 < chunk.tokens; row0 += kPlainRows) {
    for (int64_t column0 = 0; column0 < columns; column0 += kPlainColumns) {
      PlainPart tile{};
      multiply_plain<Inner::kTerm, Inner::kOther>(
          s, &tile, min(row0 + kPlainRows, chunk.tokens),
          [&](int row, int term) {
            const int i = row0 + row;
            return i < chunk.tokens && term <= i ? inverse(i, term) : 0.0f;
          },
          [&](int term, int column) { return numbers(term, column0 + column); });
      store_tile(out, chunk, head, row0, column0, columns, &tile);
    }
  }
}

/// u and w of a chunk.
template <class Inverse>
__device__ __forceinline__ void plain_wy(const StageParams& p, PlainMemory& s, const Chunk& chunk,
                                         int64_t head, const Inverse& inverse) {
  const TokenNumbers& numbers = s.numbers;
  const auto number = [&](const TokenRows& rows, int64_t from, int token, int64_t column,
                          int64_t columns) {
    return row_number(rows, at(rows, chunk.batch, chunk.row + token, from), column, columns);
  };
  apply_inverse(
      s.operands, chunk, head, p.u, p.V,
      [&](int i, int j) { return numbers.beta[j] * inverse(i, j); },
      [&](int j, int64_t column) { return number(p.values, head, j, column, p.V); });
  const int64_t keys = key_head(p, head);
  apply_inverse(
      s.operands, chunk, head, p.w, p.K,
      [&](int i, int j) {
        const float factor = p.key_gates ? numbers.beta[j] : numbers.beta[j] * expf(numbers.G[j]);
        return factor * inverse(i, j);
      },
      [&](int j, int64_t column) {
        const float k = number(p.k, keys, j, column, p.K);
        return p.key_gates ? expf(number(p.g_cumsum, head, j, column, p.K)) * k : k;
      });
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_PLAIN_PRODUCTS_CUH_
