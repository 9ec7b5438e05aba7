// Moves rows of a result from registers to a swizzled tile.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_TILE_ROWS_CUH_
#define SLUICE_CUDA_TILE_TILE_ROWS_CUH_

#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::tile {

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

#endif  // SLUICE_CUDA_TILE_TILE_ROWS_CUH_
