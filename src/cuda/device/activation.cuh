// Applies the activations of the convolution and of the norm's gate.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_ACTIVATION_CUH_
#define SLUICE_CUDA_DEVICE_ACTIVATION_CUH_

#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::device {

/// 1 / (1 + e^-x). NUM: the special function unit's exponential and reciprocal, 2 ulp each; an
/// exponential of x costs |x| 2^-24 more, far below the ulp of a result that is itself about e^x
/// there. NaN stays NaN; both ends are reached exactly. PERF four instructions.
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return ptx::reciprocal_fast(1.0f + ptx::exp2_fast(x * -kLog2E));
}

/// x sigmoid(x). BOUND: below -87 the sigmoid is a denormal, here 0, and so is this, for a true
/// value below 1e-36.
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_ACTIVATION_CUH_
