// Treats swizzled 64x64 tiles as blocks that ldmatrix and stmatrix move.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_BLOCK_TILE_CUH_
#define SLUICE_CUDA_TILE_BLOCK_TILE_CUH_

#include "cuda/ptx/barrier.cuh"
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

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_BLOCK_TILE_CUH_
