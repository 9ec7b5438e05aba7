// Makes tiles in shared memory types, with the 128-byte swizzle; tails, zeros.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SHARED_TILE_CUH_
#define SLUICE_CUDA_TILE_SHARED_TILE_CUH_

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"
#include "cuda/tile/swizzle.hpp"

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

/// Zeroes tiles, by all threads of a CTA.
template <int kThreads, class Tiles>
__device__ __forceinline__ void zero(Tiles& tiles) {
  for (uint32_t i = threadIdx.x; i < sizeof(Tiles) / 16; i += kThreads) {
    reinterpret_cast<uint4*>(&tiles)[i] = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SHARED_TILE_CUH_
