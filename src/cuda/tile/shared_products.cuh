// Multiplies two tiles in shared memory by a warpgroup, either read along its rows or down its
// columns. Each closes a group.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_
#define SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_

#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::tile {

using ptx::Major;

/// out (+)= A X.
template <bool kAdd = false, class Io, int kK, int kN>
__device__ __forceinline__ void issue_read(Accumulator<kN>& out,
                                           const SwizzledTile<Io, 64, kK>& a_tile,
                                           const SwizzledTile<Io, kK, kN>& x_tile) {
  const uint64_t a = a_tile.along_rows(), x = x_tile.down_columns();
#pragma unroll
  for (uint32_t step = 0; step < kK / 16; ++step) {
    const uint32_t at = step / 4 * a_tile.kBlockBytes + step % 4 * 32;
    ptx::wgmma_ss<Major::kK, Major::kMn>(Io{}, out.x, advance(a, at),
                                         advance(x, step * 16 * kRowBytes), kAdd || step != 0);
  }
  ptx::wgmma_commit();
}

/// out = A X^T of 128 rows of X.
template <class Io, int kK>
__device__ __forceinline__ void issue_across(Accumulator<128>& out,
                                             const SwizzledTile<Io, 64, kK>& a_tile,
                                             const SwizzledTile<Io, 128, kK>& x_tile) {
  const uint64_t a = a_tile.along_rows(), x = x_tile.along_rows();
#pragma unroll
  for (uint32_t step = 0; step < kK / 16; ++step) {
    const uint32_t block = step / 4, within = step % 4 * 32;
    ptx::wgmma_ss<Major::kK, Major::kK>(Io{}, out.x,
                                        advance(a, block * a_tile.kBlockBytes + within),
                                        advance(x, block * x_tile.kBlockBytes + within), step != 0);
  }
  ptx::wgmma_commit();
}

/// out += A^T X of rows 16 kFirst to 16 kLast.
template <uint32_t kFirst = 0, uint32_t kLast = 4, class Io>
__device__ __forceinline__ void issue_turned(Accumulator<128>& out,
                                             const SwizzledTile<Io, 64, 64>& a_tile,
                                             const SwizzledTile<Io, 64, 128>& x_tile) {
  const uint64_t a = a_tile.down_columns(), x = x_tile.down_columns();
#pragma unroll
  for (uint32_t step = kFirst; step < kLast; ++step) {
    const uint32_t at = step * 16 * kRowBytes;
    ptx::wgmma_ss<Major::kMn, Major::kMn>(Io{}, out.x, advance(a, at), advance(x, at), 1);
  }
  ptx::wgmma_commit();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SHARED_PRODUCTS_CUH_
