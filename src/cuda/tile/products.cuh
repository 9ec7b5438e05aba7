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

/// acc = X Y^T.
template <class Io, int kK>
__device__ __forceinline__ void issue_product(Accumulator<64>& acc,
                                              const SwizzledTile<Io, 64, kK>& x,
                                              const SwizzledTile<Io, 64, kK>& y) {
  const uint64_t dx = x.along_rows(), dy = y.along_rows();
#pragma unroll
  for (uint32_t step = 0; step < kK / 16; ++step) {
    const uint32_t at = (step / 4) * x.kBlockBytes + (step % 4) * 32;
    ptx::wgmma_ss_n64<0>(Io{}, acc.x, advance(dx, at), advance(dy, at), step != 0);
  }
}

/// Steps of out = A X^T.
template <class Io, int kK, size_t... kStep>
__device__ __forceinline__ void issue_recall(Accumulator<64>& out, const Operand<Io, kK>& a,
                                             uint64_t x, std::index_sequence<kStep...>) {
  constexpr uint32_t kBlockBytes = SwizzledTile<Io, 64, kK>::kBlockBytes;
  (ptx::wgmma_rs_n64<0, 4 * kStep>(
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
  ptx::wgmma_rs_n64<0, 0>(io, out.x, r.x, m, accumulate);
  ptx::wgmma_rs_n64<0, 4>(io, out.x, r.x, advance(m, 32), 1);
  ptx::wgmma_rs_n64<0, 8>(io, out.x, r.x, advance(m, 64), 1);
  ptx::wgmma_rs_n64<0, 12>(io, out.x, r.x, advance(m, 96), 1);
  ptx::wgmma_commit();
}

/// A step of S += A X, 16 rows of X.
template <int kA>
__device__ __forceinline__ void update_step(auto io, float (&S)[64], const uint32_t (&a)[16],
                                            uint64_t x) {
  ptx::wgmma_rs_n128_mn<0, kA>(io, S, a, x, 1);
}
template <int kA>
__device__ __forceinline__ void update_step(auto io, float (&S)[32], const uint32_t (&a)[16],
                                            uint64_t x) {
  ptx::wgmma_rs_n64_mn<0, kA>(io, S, a, x, 1);
}

/// S += A X.
template <class Io, int kN>
__device__ __forceinline__ void issue_update(Accumulator<kN>& S, const Operand<Io, 64>& a,
                                             const SwizzledTile<Io, 64, kN>& tile) {
  Io io{};
  constexpr uint32_t kStep = 16 * kRowBytes;
  const uint64_t x = tile.down_columns();
  update_step<0>(io, S.x, a.x, x);
  update_step<4>(io, S.x, a.x, advance(x, kStep));
  update_step<8>(io, S.x, a.x, advance(x, 2 * kStep));
  update_step<12>(io, S.x, a.x, advance(x, 3 * kStep));
  ptx::wgmma_commit();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_PRODUCTS_CUH_
