// Converts numbers; the exponential and the reciprocal (PTX ISA 9.7.9.21, 9.7.3.20, 9.7.3.14).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_CONVERT_CUH_
#define SLUICE_CUDA_PTX_CONVERT_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Two float32 rounded to bfloat16, to nearest even; the first in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float first, float second) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
  return r;
}

/// Two float32 rounded to float16, to nearest even; the first in the low half.
__device__ __forceinline__ uint32_t pack_f16(float first, float second) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
  return r;
}

/// Products of two pairs of float16 in a word each, rounded to nearest even.
__device__ __forceinline__ uint32_t multiply_f16(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

/// 2^x; 0 for very negative x, denormals flushed.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x within 1 ulp; 0 where that is a denormal.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_CONVERT_CUH_
