// Products of a warpgroup: left operands from registers or shared memory, right ones from swizzled
// tiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_PRODUCTS_CUH_
#define SLUICE_CUDA_TILE_PRODUCTS_CUH_

#include <utility>

#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace sluice::cuda::tile {

/// acc = X Y^T for two [64 tokens][K] tiles.
template <class C>
__device__ __forceinline__ void issue_product(float (&acc)[32], const uint8_t* x,
                                              const uint8_t* y) {
  const uint64_t dx = k_major(ptx::shared_address(x));
  const uint64_t dy = k_major(ptx::shared_address(y));
#pragma unroll
  for (uint32_t step = 0; step < C::kK / 16; ++step) {
    const uint32_t at = (step / 4) * C::kHalfTileBytes + (step % 4) * 32;
    ptx::wgmma_ss_n64<0>(typename C::Io{}, acc, advance(dx, at), advance(dy, at), step != 0);
  }
}

/// Steps of out = S^T X^T for a [64 tokens][K] tile X; S^T as packed A fragments.
template <class C, size_t... kStep>
__device__ __forceinline__ void issue_recall(float (&out)[32], const uint32_t (&state)[C::kK / 4],
                                             uint64_t x, std::index_sequence<kStep...>) {
  (ptx::wgmma_rs_n64<0, 4 * kStep>(typename C::Io{}, out, state,
                                   advance(x, kStep / 4 * C::kHalfTileBytes + kStep % 4 * 32),
                                   kStep != 0),
   ...);
  ptx::wgmma_commit();
}

/// out = S^T X^T.
template <class C>
__device__ __forceinline__ void issue_recall(float (&out)[32], const uint32_t (&state)[C::kK / 4],
                                             uint64_t x) {
  issue_recall<C>(out, state, x, std::make_index_sequence<C::kK / 16>());
}

/// out (+)= R M^T for a lower triangular [64][64] tile M.
template <class C>
__device__ __forceinline__ void issue_mix(float (&out)[32], const uint32_t (&r)[16], uint64_t m,
                                          int accumulate) {
  typename C::Io io{};
  ptx::wgmma_rs_n64<0, 0>(io, out, r, m, accumulate);
  ptx::wgmma_rs_n64<0, 4>(io, out, r, advance(m, 32), 1);
  ptx::wgmma_rs_n64<0, 8>(io, out, r, advance(m, 64), 1);
  ptx::wgmma_rs_n64<0, 12>(io, out, r, advance(m, 96), 1);
  ptx::wgmma_commit();
}

/// A step of S^T += N Kc, 16 tokens.
template <int kA>
__device__ __forceinline__ void update_step(auto io, float (&S)[64], const uint32_t (&n)[16],
                                            uint64_t k) {
  ptx::wgmma_rs_n128_mn<0, kA>(io, S, n, k, 1);
}
template <int kA>
__device__ __forceinline__ void update_step(auto io, float (&S)[32], const uint32_t (&n)[16],
                                            uint64_t k) {
  ptx::wgmma_rs_n64_mn<0, kA>(io, S, n, k, 1);
}

/// S^T += N Kc for Kc [64 tokens][K], read with tokens as the reduction dimension.
template <class C>
__device__ __forceinline__ void issue_update(float (&S)[C::kK / 2], const uint32_t (&n)[16],
                                             uint64_t k) {
  typename C::Io io{};
  constexpr uint32_t kStep = 16 * kRowBytes;
  update_step<0>(io, S, n, k);
  update_step<4>(io, S, n, advance(k, kStep));
  update_step<8>(io, S, n, advance(k, 2 * kStep));
  update_step<12>(io, S, n, advance(k, 3 * kStep));
  ptx::wgmma_commit();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_PRODUCTS_CUH_
