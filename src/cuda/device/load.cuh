// Elements of tensors whose type is known at run time.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_LOAD_CUH_
#define SLUICE_CUDA_DEVICE_LOAD_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/device/views.h"

namespace sluice::cuda::device {

/// Element `index` of a float array that the kernel does not write.
__device__ __forceinline__ float load_number(const void* data, int64_t index, Number number) {
  if (number == Number::kFloat32) return __ldg(static_cast<const float*>(data) + index);
  if (number == Number::kBfloat16) {
    return __bfloat162float(__ldg(static_cast<const __nv_bfloat16*>(data) + index));
  }
  return __half2float(__ldg(static_cast<const __half*>(data) + index));
}

/// Element `n` of an integer vector.
__device__ __forceinline__ int64_t load_index(const IndexVector& vector, int64_t n) {
  const int64_t at = n * vector.stride;
  return vector.is_64bit ? __ldg(static_cast<const long long*>(vector.data) + at)
                         : __ldg(static_cast<const int*>(vector.data) + at);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_LOAD_CUH_
