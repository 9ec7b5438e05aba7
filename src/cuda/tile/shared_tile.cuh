// Makes tiles in shared memory types, with the 128-byte swizzle; norms of rows, tails, zeros.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SHARED_TILE_CUH_
#define SLUICE_CUDA_TILE_SHARED_TILE_CUH_

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::tile {

/// kRows x kColumns numbers of 16 bits as blocks of 64 columns, [block][row][64], each swizzled: what
/// the copy engine moves, and an operand of wgmma.
template <class Io, int kRows, int kColumns>
struct alignas(kAtomBytes) SwizzledTile {
  static_assert(kRows % 8 == 0 && kColumns % 64 == 0);
  static constexpr uint32_t kBlockBytes = kRows * kRowBytes, kBlocks = kColumns / 64;
  static constexpr uint32_t kBytes = kBlocks * kBlockBytes;
  uint8_t bytes[kBytes];

  __device__ __forceinline__ uint8_t* block(int i) { return bytes + i * kBlockBytes; }
  __device__ __forceinline__ const uint8_t* block(int i) const { return bytes + i * kBlockBytes; }
  __device__ __forceinline__ uint32_t address() const { return ptx::shared_address(bytes); }
  /// Descriptor of an operand whose reduction runs along the rows, of block 0; the next block is
  /// kBlockBytes further on.
  __device__ __forceinline__ uint64_t along_rows() const { return k_major(address()); }
  /// Descriptor of an operand whose reduction runs down the columns.
  __device__ __forceinline__ uint64_t down_columns() const {
    return mn_major(address(), kBlockBytes);
  }
  /// Zeroes rows at or past `count`, by the 128 threads of a warpgroup: products multiply them, and
  /// 0 * NaN is NaN.
  __device__ __forceinline__ void zero_rows_from(int count) {
    constexpr uint32_t kPieces = kColumns / 8;  // of 16 bytes, in a row
    for (uint32_t i = threadIdx.x & 127u; i < static_cast<uint32_t>(kRows - count) * kPieces;
         i += 128) {
      const uint32_t row = static_cast<uint32_t>(count) + i / kPieces, piece = i % kPieces;
      *reinterpret_cast<uint4*>(bytes + (piece >> 3) * kBlockBytes + row * kRowBytes +
                                (piece & 7u) * 16) = make_uint4(0, 0, 0, 0);
    }
  }
};

/// Sums of squares of 64 rows of a tile, two threads a row: one half each. The result is valid in
/// both threads of the pair (2 row, 2 row + 1).
template <class Io, int kK>
__device__ __forceinline__ float sum_of_squares(const SwizzledTile<Io, 64, kK>& tile) {
  constexpr uint32_t kPieces = kK / 16;  // of 16 bytes, in half a row
  const uint32_t thread = threadIdx.x & 127u;
  const uint32_t row = thread >> 1;
  float sum = 0;
#pragma unroll 2
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t piece = (thread & 1u) * kPieces + i;
    const uint4 x = *reinterpret_cast<const uint4*>(tile.bytes + (piece >> 3) * tile.kBlockBytes +
                                                    swizzled_piece(row, piece & 7u));
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t word : words) {
      const float a = Packed<Io>::first(word);
      const float b = Packed<Io>::second(word);
      sum += a * a + b * b;
    }
  }
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

/// Inverse norms of the rows, likewise.
template <class Io, int kK>
__device__ __forceinline__ float inverse_norm(const SwizzledTile<Io, 64, kK>& tile, float eps) {
  return rsqrtf(sum_of_squares(tile) + eps);
}

/// Zeroes tiles, by all threads of a CTA.
template <int kThreads, class Tiles>
__device__ __forceinline__ void zero(Tiles& tiles) {
  for (uint32_t i = threadIdx.x; i < sizeof(Tiles) / 16; i += kThreads) {
    reinterpret_cast<uint4*>(&tiles)[i] = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SHARED_TILE_CUH_
