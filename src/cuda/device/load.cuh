// Loads elements of tensors whose type is known at run time.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_LOAD_CUH_
#define SLUICE_CUDA_DEVICE_LOAD_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/device/views.h"

namespace sluice::cuda::device {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

/// Rounds to nearest even.
__device__ __forceinline__ void from_float(float* out, float x) { *out = x; }
__device__ __forceinline__ void from_float(__nv_bfloat16* out, float x) {
  *out = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void from_float(__half* out, float x) { *out = __float2half_rn(x); }

/// Element `index` of a float array that the kernel does not write.
__device__ __forceinline__ float load_number(const void* data, int64_t index, Number number) {
  if (number == Number::kFloat32) return __ldg(static_cast<const float*>(data) + index);
  if (number == Number::kBfloat16) {
    return to_float(__ldg(static_cast<const __nv_bfloat16*>(data) + index));
  }
  return to_float(__ldg(static_cast<const __half*>(data) + index));
}

/// A 16-bit element of either type.
__device__ __forceinline__ float from_bits(Number number, unsigned short bits) {
  return number == Number::kBfloat16 ? to_float(__ushort_as_bfloat16(bits))
                                     : to_float(__ushort_as_half(bits));
}

/// An element as it lies in memory, of 32 or the lower 16 bits. PERF converted only where it is used:
/// a conversion behind the load would make each load wait for the one before.
__device__ __forceinline__ float number_of(Number number, uint32_t bits) {
  if (number == Number::kFloat32) return __uint_as_float(bits);
  return from_bits(number, static_cast<unsigned short>(bits));
}

/// Element `n` of an integer vector.
__device__ __forceinline__ int64_t load_index(const IndexVector& vector, int64_t n) {
  const int64_t at = n * vector.stride;
  return vector.is_64bit ? __ldg(static_cast<const long long*>(vector.data) + at)
                         : __ldg(static_cast<const int*>(vector.data) + at);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_LOAD_CUH_
