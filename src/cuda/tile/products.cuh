// Multiplies by a warpgroup: left operands in registers or shared memory, right ones in swizzled
// tiles. Each but issue_product() closes a group.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_PRODUCTS_CUH_
#define SLUICE_CUDA_TILE_PRODUCTS_CUH_

#include <utility>

#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::tile {

using ptx::Major;

/// acc = X Y^T.
template <class Io, int kK>
__device__ __forceinline__ void issue_product(Accumulator<64>& acc,
                                              const SwizzledTile<Io, 64, kK>& x,
                                              const SwizzledTile<Io, 64, kK>& y) {
  const uint64_t dx = x.along_rows(), dy = y.along_rows();
#pragma unroll
  for (uint32_t step = 0; step < kK / 16; ++step) {
    const uint32_t at = (step / 4) * x.kBlockBytes + (step % 4) * 32;
    ptx::wgmma_ss<Major::kK, Major::kK>(Io{}, acc.x, advance(dx, at), advance(dy, at), step != 0);
  }
}

/// Steps of out = A X^T.
template <class Io, int kK, size_t... kStep>
__device__ __forceinline__ void issue_recall(Accumulator<64>& out, const Operand<Io, kK>& a,
                                             uint64_t x, std::index_sequence<kStep...>) {
  constexpr uint32_t kBlockBytes = SwizzledTile<Io, 64, kK>::kBlockBytes;
  (ptx::wgmma_rs<4 * kStep, Major::kK>(
       Io{}, out.x, a.x, advance(x, kStep / 4 * kBlockBytes + kStep % 4 * 32), kStep != 0),
   ...);
  ptx::wgmma_commit();
}

/// out = A X^T.
template <class Io, int kK>
__device__ __forceinline__ void issue_recall(Accumulator<64>& out, const Operand<Io, kK>& a,
                                             const SwizzledTile<Io, 64, kK>& x) {
  issue_recall(out, a, x.along_rows(), std::make_index_sequence<kK / 16>());
}

/// out (+)= R M^T for a lower triangular M.
template <class Io>
__device__ __forceinline__ void issue_mix(Accumulator<64>& out, const Operand<Io, 64>& r,
                                          const SwizzledTile<Io, 64, 64>& tile, int accumulate) {
  Io io{};
  const uint64_t m = tile.along_rows();
  ptx::wgmma_rs<0, Major::kK>(io, out.x, r.x, m, accumulate);
  ptx::wgmma_rs<4, Major::kK>(io, out.x, r.x, advance(m, 32), 1);
  ptx::wgmma_rs<8, Major::kK>(io, out.x, r.x, advance(m, 64), 1);
  ptx::wgmma_rs<12, Major::kK>(io, out.x, r.x, advance(m, 96), 1);
  ptx::wgmma_commit();
}

/// S += A X.
template <class Io, int kN>
__device__ __forceinline__ void issue_update(Accumulator<kN>& S, const Operand<Io, 64>& a,
                                             const SwizzledTile<Io, 64, kN>& tile) {
  Io io{};
  constexpr uint32_t kStep = 16 * kRowBytes;
  const uint64_t x = tile.down_columns();
  ptx::wgmma_rs<0, Major::kMn>(io, S.x, a.x, x, 1);
  ptx::wgmma_rs<4, Major::kMn>(io, S.x, a.x, advance(x, kStep), 1);
  ptx::wgmma_rs<8, Major::kMn>(io, S.x, a.x, advance(x, 2 * kStep), 1);
  ptx::wgmma_rs<12, Major::kMn>(io, S.x, a.x, advance(x, 3 * kStep), 1);
  ptx::wgmma_commit();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_PRODUCTS_CUH_
