// Emulates src/cuda/ptx/convert.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_CONVERT_CUH_
#define SLUICE_CUDA_PTX_CONVERT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

namespace sluice::cuda::ptx {

inline uint32_t pack_bf16(float first, float second) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(first)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(second))) << 16;
}
inline uint32_t pack_f16(float first, float second) {
  return __half_as_ushort(__float2half_rn(first)) |
         static_cast<uint32_t>(__half_as_ushort(__float2half_rn(second))) << 16;
}
inline uint32_t multiply_f16(uint32_t a, uint32_t b) {
  const auto number = [](uint32_t word) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(word)));
  };
  return pack_f16(number(a) * number(b), number(a >> 16) * number(b >> 16));
}
inline float exp2_fast(float x) { return x < -126.0f ? 0.0f : std::exp2(x); }
inline float reciprocal_fast(float x) { return std::abs(x) > 0x1p126f ? 0.0f / x : 1.0f / x; }

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_CONVERT_CUH_
