// Multiplies two tiles in shared memory by a warpgroup, the second one read down its columns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_
#define SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_

#include "cuda/ptx/wgmma_shared_shapes.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::tile {

/// A step of out (+)= A X, 16 rows of X.
__device__ __forceinline__ void read_step(auto io, float (&out)[64], uint64_t a, uint64_t x,
                                          int accumulate) {
  ptx::wgmma_ss_n128_mn<0>(io, out, a, x, accumulate);
}
__device__ __forceinline__ void read_step(auto io, float (&out)[32], uint64_t a, uint64_t x,
                                          int accumulate) {
  ptx::wgmma_ss_n64_mn<0>(io, out, a, x, accumulate);
}

/// out = A X; closes a group.
template <class Io, int kK, int kN>
__device__ __forceinline__ void issue_read(Accumulator<kN>& out,
                                           const SwizzledTile<Io, 64, kK>& a_tile,
                                           const SwizzledTile<Io, kK, kN>& x_tile) {
  const uint64_t a = a_tile.along_rows(), x = x_tile.down_columns();
#pragma unroll
  for (uint32_t step = 0; step < kK / 16; ++step) {
    const uint32_t at = step / 4 * a_tile.kBlockBytes + step % 4 * 32;
    read_step(Io{}, out.x, advance(a, at), advance(x, step * 16 * kRowBytes), step != 0);
  }
  ptx::wgmma_commit();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_
