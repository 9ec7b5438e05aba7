// Multiplies 64 x 64 tiles of 16-bit numbers by warps (mma.m16n8k16), and moves them.
//
// Tiles lie in shared memory as 64 rows of 128 bytes, their 16-byte pieces permuted by row
// (tile/swizzle.hpp), so that ldmatrix meets no bank twice. A warp has 16 rows of a result; lane l
// has rows l / 4 and l / 4 + 8 and columns 8 j + l % 4 * 2 and the next of its tiles j of 8
// columns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_WARP_PRODUCTS_CUH_
#define SLUICE_CUDA_TILE_WARP_PRODUCTS_CUH_

#include <type_traits>

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::tile {

inline constexpr uint32_t kTile = 8192;  ///< bytes of 64 x 64 numbers of 16 bits

template <class Io>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t* a, const uint32_t* b) {
  if constexpr (std::is_same_v<Io, __half>) {
    ptx::mma_f16(d, a, b);
  } else {
    ptx::mma_bf16(d, a, b);
  }
}

/// Address of what this lane names of four 8x8 matrices of a tile: two by two, `down` those that
/// differ in bit 0 lie below each other (else side by side).
template <bool kDown>
__device__ __forceinline__ uint32_t quad_address(uint32_t tile, int row, int column) {
  const int low = lane() / 8 % 2, high = lane() / 16;
  const int r = row + lane() % 8 + 8 * (kDown ? low : high);
  const int piece = column / 8 + (kDown ? high : low);
  return tile + swizzled_piece(static_cast<uint32_t>(r), static_cast<uint32_t>(piece));
}

/// Left operand: rows row .. row + 15, terms column .. column + 15 of a tile [row][term].
__device__ __forceinline__ void load_left(uint32_t (&a)[4], uint32_t tile, int row, int column) {
  ptx::ldmatrix_x4(a, quad_address<true>(tile, row, column));
}
/// The same of a tile [term][row].
__device__ __forceinline__ void load_left_turned(uint32_t (&a)[4], uint32_t tile, int row,
                                                 int term) {
  ptx::ldmatrix_x4_trans(a, quad_address<false>(tile, term, row));
}
/// Right operand: 16 terms and 16 columns of a tile [term][column]; two of a lane's words a tile.
__device__ __forceinline__ void load_right(uint32_t (&b)[4], uint32_t tile, int term, int column) {
  ptx::ldmatrix_x4_trans(b, quad_address<true>(tile, term, column));
}
/// The same of a tile [column][term].
__device__ __forceinline__ void load_right_turned(uint32_t (&b)[4], uint32_t tile, int term,
                                                  int column) {
  ptx::ldmatrix_x4(b, quad_address<false>(tile, column, term));
}

/// A warp's 16 rows and 8 kTiles columns of a result.
template <int kTiles>
struct WarpAccumulator {
  float x[kTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[j][i] = 0.0f;
    }
  }
  /// Calls use(row of 16, column of 8 kTiles, first, second) for every pair of the lane's numbers.
  template <class Use>
  __device__ __forceinline__ void for_each_pair(const Use& use) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      use(lane_row(), 8 * j + lane_column(), x[j][0], x[j][1]);
      use(lane_row() + 8, 8 * j + lane_column(), x[j][2], x[j][3]);
    }
  }
  /// Factors of the lane's two rows.
  __device__ __forceinline__ void scale_rows(float first, float second) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      x[j][0] *= first, x[j][1] *= first;
      x[j][2] *= second, x[j][3] *= second;
    }
  }
};

/// sum += a right[16 terms from `term` on][columns from `column` on].
template <class Io, bool kTurned, int kTiles>
__device__ __forceinline__ void multiply_step(WarpAccumulator<kTiles>& sum, const uint32_t (&a)[4],
                                              uint32_t right, int term, int column) {
#pragma unroll
  for (int j = 0; j < kTiles; j += 2) {
    uint32_t b[4];
    if constexpr (kTurned) {
      load_right_turned(b, right, term, column + 8 * j);
    } else {
      load_right(b, right, term, column + 8 * j);
    }
    mma<Io>(sum.x[j], a, b);
    mma<Io>(sum.x[j + 1], a, b + 2);
  }
}

/// sum += left[rows of the warp][64 terms] right[64 terms][columns]; kTurned: right is
/// [column][term].
template <class Io, bool kTurned, int kTiles>
__device__ __forceinline__ void multiply(WarpAccumulator<kTiles>& sum, uint32_t left, int row,
                                         uint32_t right, int column) {
#pragma unroll
  for (int term = 0; term < 64; term += 16) {
    uint32_t a[4];
    load_left(a, left, row, term);
    multiply_step<Io, kTurned, kTiles>(sum, a, right, term, column);
  }
}

/// 16 rows and 64 columns of a result as a left operand of 64 terms.
struct WarpOperand {
  uint32_t a[4][4];
};
template <class Io>
__device__ __forceinline__ WarpOperand pack(const WarpAccumulator<8>& from) {
  using P = Packed<Io>;
  const auto& x = from.x;
  WarpOperand left;
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    left.a[s][0] = P::pack(x[2 * s][0], x[2 * s][1]);
    left.a[s][1] = P::pack(x[2 * s][2], x[2 * s][3]);
    left.a[s][2] = P::pack(x[2 * s + 1][0], x[2 * s + 1][1]);
    left.a[s][3] = P::pack(x[2 * s + 1][2], x[2 * s + 1][3]);
  }
  return left;
}
/// sum += left right[64 terms][columns].
template <class Io, int kTiles>
__device__ __forceinline__ void multiply(WarpAccumulator<kTiles>& sum, const WarpOperand& left,
                                         uint32_t right, int column) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    multiply_step<Io, false, kTiles>(sum, left.a[s], right, 16 * s, column);
  }
}

/// A pair of numbers at (row, column) of a tile; column is even.
__device__ __forceinline__ uint32_t pair_address(uint32_t tile, int row, int column) {
  return tile + swizzled_element(static_cast<uint32_t>(row), static_cast<uint32_t>(column));
}

/// Rounds a warp's rows into a tile: rows row .. row + 15, columns from `column` on.
template <class Io, int kTiles>
__device__ __forceinline__ void put_part(uint32_t tile, int row, int column,
                                         WarpAccumulator<kTiles>& part) {
  part.for_each_pair([&](int i, int j, float x, float y) {
    ptx::store_shared_4(pair_address(tile, row + i, column + j), Packed<Io>::pack(x, y));
  });
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_WARP_PRODUCTS_CUH_
