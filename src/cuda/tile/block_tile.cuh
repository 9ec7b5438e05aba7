// Treats swizzled 64x64 tiles as blocks that ldmatrix and stmatrix move; stores results there.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_BLOCK_TILE_CUH_
#define SLUICE_CUDA_TILE_BLOCK_TILE_CUH_

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::tile {

/// A swizzled 64x64 tile of 16-bit numbers, 1024-byte aligned, seen as 16x16 blocks that ldmatrix
/// and stmatrix move; the four 8x8 parts of a block come in the order of an mma A fragment.
struct BlockTile {
  uint32_t base;  ///< shared address
  uint32_t lane;  ///< this lane's address for block (0, 0)

  __device__ __forceinline__ explicit BlockTile(const void* tile)
      : base(ptx::shared_address(tile)),
        lane(base + swizzled_piece(threadIdx.x & 15u, (threadIdx.x >> 4) & 1u)) {
    // WHY: otherwise all blocks' addresses are kept in registers across chunks, and spill.
    asm volatile("" : "+r"(lane));
  }
  /// Columns of blocks are bits 5 and 6 of the address, which the swizzle permutes by exclusive or.
  __device__ __forceinline__ uint32_t block(int row, int column) const {
    return (lane + static_cast<uint32_t>(row) * 2048) ^ (static_cast<uint32_t>(column) * 32);
  }
};

/// A warpgroup's result to its tile. NUM: rounds to Io.
template <class Io, int kN>
__device__ __forceinline__ void put_rows(SwizzledTile<Io, 64, kN>& tile,
                                         const Accumulator<kN>& from) {
  const int warp = warp_of_group();
#pragma unroll
  for (int half = 0; half < kN / 64; ++half) {
    const BlockTile blocks(tile.block(half));
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = half * 32 + block * 8 + 2 * i;
        packed[i] = Packed<Io>::pack(from.x[at], from.x[at + 1]);
      }
      ptx::stmatrix_x4(blocks.block(warp, block), packed);
    }
  }
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_BLOCK_TILE_CUH_
