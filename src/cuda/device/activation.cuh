// Activations of the convolution and of the norm's gate.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_ACTIVATION_CUH_
#define SLUICE_CUDA_DEVICE_ACTIVATION_CUH_

namespace sluice::cuda::device {

/// 1 / (1 + e^-x). NUM: the special function unit's exponential and reciprocal, 2 ulp each; an
/// exponential of x costs |x| 2^-24 more, far below the ulp of a result that is itself about e^x
/// there. NaN stays NaN; both ends are reached exactly.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// x sigmoid(x). BOUND: where e^-x is infinite, __fdividef(x, inf) is -0 as it should be; between
/// 2^126 and 2^128 it is 0 too, for a true value below 1e-36.
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_ACTIVATION_CUH_
