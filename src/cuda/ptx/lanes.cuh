// Sums over lanes of a warp, and reads each other's numbers (PTX ISA 9.7.9.6).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_LANES_CUH_
#define SLUICE_CUDA_PTX_LANES_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Replaces each of kCount (at most 16) numbers by its sum over the lanes that differ in kBits bits
/// of their number from bit kFirst on; the same bits in all of them. Whole warps only.
template <int kFirst, int kBits, int kCount>
__device__ __forceinline__ void sum_over_lanes(float (&x)[kCount]) {
#pragma unroll
  for (int bit = kFirst; bit < kFirst + kBits; ++bit) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += __shfl_xor_sync(~0u, x[i], 1 << bit);
  }
}

/// The same over the lanes that differ in any bit from bit `first` on, which the warp agrees on.
template <int kCount>
__device__ __forceinline__ void sum_from_bit(int first, float (&x)[kCount]) {
  for (int bit = first; bit < 5; ++bit) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += __shfl_xor_sync(~0u, x[i], 1 << bit);
  }
}

/// One step of fold_over_lanes(): neighbours become one number, half of them in either lane.
/// WHY not a loop over steps, and a mask: places of x that depend on anything put x into memory.
template <int kCount>
__device__ __forceinline__ float fold_step(const float (&x)[kCount], uint32_t bit) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    const uint32_t mask = 0u - (threadIdx.x >> bit & 1);
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const uint32_t a = __float_as_uint(x[2 * i]), b = __float_as_uint(x[2 * i + 1]);
      const uint32_t kept = (a & ~mask) | (b & mask), sent = (b & ~mask) | (a & mask);
      half[i] = __uint_as_float(kept) + __uint_as_float(__shfl_xor_sync(~0u, sent, 1 << bit));
    }
    return fold_step(half, bit + 1);
  }
}

/// Sum over kLanes neighbouring lanes (16 or 32) of their x[i], in the order of sum_over_lanes(),
/// where i is the calling lane's number mod 16: 15 shuffles, for lanes share the sums out.
template <int kLanes>
__device__ __forceinline__ float fold_over_lanes(const float (&x)[16]) {
  const float sum = fold_step(x, 0);
  return kLanes == 32 ? sum + __shfl_xor_sync(~0u, sum, 16) : sum;
}

/// The least of the lanes' numbers; compute capability 8.0 or newer.
__device__ __forceinline__ uint32_t least_of_lanes(uint32_t x) { return __reduce_min_sync(~0u, x); }

/// x of another lane of the warp.
__device__ __forceinline__ float from_lane(float x, int lane) { return __shfl_sync(~0u, x, lane); }

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_LANES_CUH_
