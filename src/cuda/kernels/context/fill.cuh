// Prepares a summary by the generic kernel: the identity, zeros, and the slots of the pieces that are
// wanted.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONTEXT_FILL_CUH_
#define SLUICE_CUDA_KERNELS_CONTEXT_FILL_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/load.cuh"
#include "cuda/kernels/context/launch.h"

namespace sluice::cuda::context {

inline constexpr int kFillThreads = 256;

__global__ void __launch_bounds__(kFillThreads) fill_kernel(const __grid_constant__ FillParams p) {
  device::follow();
  const int64_t begin = int64_t{blockIdx.x} * kFillThreads + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * kFillThreads;
  for (int64_t at = begin; at < p.HV * p.K * p.K; at += step) {
    p.identity[at] = at / p.K % p.K == at % p.K ? 1.0f : 0.0f;
  }
  // Floats are as long as any type's zeros.
  for (int64_t at = begin; at < p.K; at += step) static_cast<float*>(p.zeros)[at] = 0.0f;
  for (int64_t n = begin; n < p.N; n += step) {
    const int64_t bits = p.wanted.data == nullptr ? 3 : device::load_index(p.wanted, n);
    p.addend_slots[n] = (bits & 1) != 0 ? static_cast<int32_t>(n) : -1;
    p.transition_slots[n] = (bits & 2) != 0 ? static_cast<int32_t>(n) : -1;
    p.identity_slots[n] = (bits & 2) != 0 ? 0 : -1;
  }
  for (int64_t at = begin; at < p.N * p.HV && p.forgotten.data != nullptr; at += step) {
    p.forgotten.data[at / p.HV * p.forgotten.piece_stride + at % p.HV * p.forgotten.head_stride] =
        0;
  }
}

}  // namespace sluice::cuda::context

#endif  // SLUICE_CUDA_KERNELS_CONTEXT_FILL_CUH_
