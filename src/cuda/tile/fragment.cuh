// Holds register fragments of a warpgroup's products: accumulators, and left operands made of them.
//
// A warpgroup has 64 rows. Number 4 j + 2 i + e of a lane is that of row group_row() + 8 i and
// column 8 j + lane_column() + e (PTX ISA 9.7.15.5.1); an operand has two columns in a word.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_FRAGMENT_CUH_
#define SLUICE_CUDA_TILE_FRAGMENT_CUH_

#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::tile {

/// Bits to keep of a word of two 16-bit numbers, of which the first `count` are wanted.
__device__ __forceinline__ uint32_t tail_mask(int count) {
  return count >= 2 ? ~0u : count == 1 ? 0xFFFFu : 0u;
}

/// 64 x kN float32 numbers.
template <int kN>
struct Accumulator {
  static constexpr int kSize = kN / 2;
  float x[kSize];

  __device__ __forceinline__ static int row(int at) { return group_row() + (at >> 1 & 1) * 8; }
  __device__ __forceinline__ static int column(int at) {
    return (at >> 2) * 8 + lane_column() + (at & 1);
  }
  /// Calls use(row, column, number) for each.
  template <class Use>
  __device__ __forceinline__ void for_each(const Use& use) {
#pragma unroll
    for (int at = 0; at < kSize; ++at) use(row(at), column(at), x[at]);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& number : x) number = 0.0f;
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (float& number : x) number *= factor;
  }
  /// Factors of the lane's two rows.
  __device__ __forceinline__ void scale_rows(float first, float second) {
#pragma unroll
    for (int at = 0; at < kSize; ++at) x[at] *= at / 2 % 2 == 0 ? first : second;
  }
  /// One factor a column.
  __device__ __forceinline__ void scale_columns(const float* factors) {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const float2 f = *reinterpret_cast<const float2*>(&factors[8 * j + lane_column()]);
      x[4 * j] *= f.x;
      x[4 * j + 1] *= f.y;
      x[4 * j + 2] *= f.x;
      x[4 * j + 3] *= f.y;
    }
  }
  /// Zeroes rows and columns at or past `count`: they may come from another sequence.
  __device__ __forceinline__ void mask_from(int count) {
    for_each([&](int i, int j, float& number) { number = i < count && j < count ? number : 0.0f; });
  }
};

/// 64 x kN numbers of type Io.
template <class Io, int kN>
struct Operand {
  static constexpr int kSize = kN / 4;
  uint32_t x[kSize];

  /// NUM: rounds to Io.
  __device__ __forceinline__ void pack(const Accumulator<kN>& from) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) x[i] = Packed<Io>::pack(from.x[2 * i], from.x[2 * i + 1]);
  }
  /// The transpose of a tile of kN rows; `address` is this lane's (turned_piece()).
  __device__ __forceinline__ void load_turned(uint32_t address) {
#pragma unroll
    for (uint32_t j = 0; j < kN / 16; ++j) {
      ptx::ldmatrix_x4_trans(x + 4 * j, address + j * 2 * kAtomBytes);
    }
  }
  /// The same from registers to the tile.
  __device__ __forceinline__ void store_turned(uint32_t address) const {
#pragma unroll
    for (uint32_t j = 0; j < kN / 16; ++j) {
      ptx::stmatrix_x4_trans(address + j * 2 * kAtomBytes, x + 4 * j);
    }
  }
  /// Zeroes columns at or past `count`.
  __device__ __forceinline__ void mask_columns_from(int count) {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const uint32_t keep = tail_mask(count - (8 * j + lane_column()));
      x[2 * j] &= keep;
      x[2 * j + 1] &= keep;
    }
  }
};

/// Offset of what this lane moves of 16 rows x 16 columns of a tile that an operand is the transpose
/// of: columns of the tile are rows of the operand.
__device__ __forceinline__ uint32_t turned_piece() {
  const auto at = static_cast<uint32_t>(lane()), warp = static_cast<uint32_t>(warp_of_group());
  return swizzled_piece((at & 7u) + 8 * (at >> 4), 2 * warp + ((at >> 3) & 1u));
}

/// Keeps accesses from moving across (ptx::pin).
template <int kN>
__device__ __forceinline__ void pin(Accumulator<kN>& r) {
  ptx::pin(r.x);
}
template <class Io, int kN>
__device__ __forceinline__ void pin(Operand<Io, kN>& r) {
  ptx::pin(r.x);
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_FRAGMENT_CUH_
