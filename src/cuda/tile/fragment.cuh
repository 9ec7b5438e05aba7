// Register fragments of warpgroup products: packing, factors and masks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_FRAGMENT_CUH_
#define SLUICE_CUDA_TILE_FRAGMENT_CUH_

#include "cuda/tile/number.cuh"

namespace sluice::cuda::tile {

/// Accumulators as packed A fragments.
template <class C, size_t kSize>
__device__ __forceinline__ void pack_all(uint32_t (&out)[kSize], const float (&x)[2 * kSize]) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) {
    out[i] = Packed<typename C::Io>::pack(x[2 * i], x[2 * i + 1]);
  }
}

/// x *= diag(f), one factor per column.
__device__ __forceinline__ void scale_columns(float (&x)[32], const float* factors) {
  const int lane2 = static_cast<int>(threadIdx.x & 3u) * 2;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&factors[8 * j + lane2]);
    x[4 * j] *= f.x;
    x[4 * j + 1] *= f.y;
    x[4 * j + 2] *= f.x;
    x[4 * j + 3] *= f.y;
  }
}

/// Zeroes rows and columns at or past `rows` of a raw product: they may come from another sequence.
__device__ __forceinline__ void mask_tail(float (&x)[32], int rows) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int row = static_cast<int>((threadIdx.x >> 5) & 3u) * 16 + (lane >> 2);
#pragma unroll
  for (int at = 0; at < 32; ++at) {
    const int i = row + ((at >> 1) & 1) * 8, j = (at >> 2) * 8 + (lane & 3) * 2 + (at & 1);
    x[at] = i < rows && j < rows ? x[at] : 0.0f;
  }
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_FRAGMENT_CUH_
