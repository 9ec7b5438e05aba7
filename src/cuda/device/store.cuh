// Stores elements, which kernels may read again, of a type known at run time.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_STORE_CUH_
#define SLUICE_CUDA_DEVICE_STORE_CUH_

#include "cuda/device/load.cuh"

namespace sluice::cuda::device {

/// Element `index` of a float array = x, rounded to nearest even.
__device__ __forceinline__ void store_number(void* data, int64_t index, Number number, float x) {
  if (number == Number::kFloat32) {
    static_cast<float*>(data)[index] = x;
  } else if (number == Number::kBfloat16) {
    from_float(static_cast<__nv_bfloat16*>(data) + index, x);
  } else {
    from_float(static_cast<__half*>(data) + index, x);
  }
}

/// Element `index` of a float array that the kernel also writes: no read-only cache.
__device__ __forceinline__ float load_written(const void* data, int64_t index, Number number) {
  if (number == Number::kFloat32) return static_cast<const float*>(data)[index];
  if (number == Number::kBfloat16) {
    return to_float(static_cast<const __nv_bfloat16*>(data)[index]);
  }
  return to_float(static_cast<const __half*>(data)[index]);
}

/// The bits of a 16-bit element of either type.
__device__ __forceinline__ unsigned short to_bits(Number number, float x) {
  return number == Number::kBfloat16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                                     : __half_as_ushort(__float2half_rn(x));
}

/// x after a trip through memory of that type.
__device__ __forceinline__ float rounded(Number number, float x) {
  if (number == Number::kFloat32) return x;
  if (number == Number::kBfloat16) return to_float(__float2bfloat16_rn(x));
  return to_float(__float2half_rn(x));
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_STORE_CUH_
