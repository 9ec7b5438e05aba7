// Multiplies float32 matrices by tensor cores: every number as the sum of two TF32 ones.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_TF32X2_CUH_
#define SLUICE_CUDA_TILE_TF32X2_CUH_

#include <cstdint>

#include "cuda/ptx/matrix.cuh"

namespace sluice::cuda::tile {

/// Numbers x = high + low, high with the first 11 bits of x. NUM: of low, mma_tf32() sees the next
/// 11, so that 2^-21 of x is lost at most; a number that is not finite makes NaN.
template <int kCount>
struct Tf32x2 {
  uint32_t high[kCount], low[kCount];

  __device__ __forceinline__ void set(int i, float x) {
    high[i] = __float_as_uint(x) & 0xffffe000u;
    low[i] = __float_as_uint(x - __uint_as_float(high[i]));
  }
};

/// D[16,8] += A[16,8] B[8,8] in the order of mma_tf32(). NUM: without low times low, 2^-20 of a
/// product at most.
/// @param a_low, b_low whether A and B have low parts that are not zero
__device__ __forceinline__ void multiply_tf32x2(float (&d)[4], const Tf32x2<4>& a,
                                                const Tf32x2<2>& b, bool a_low, bool b_low) {
  if (a_low) ptx::mma_tf32(d, a.low, b.high);
  if (b_low) ptx::mma_tf32(d, a.high, b.low);
  ptx::mma_tf32(d, a.high, b.high);
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_TF32X2_CUH_
