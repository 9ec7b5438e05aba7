// Begins a kernel that may be launched before the one ahead of it has ended.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_FOLLOW_CUH_
#define SLUICE_CUDA_DEVICE_FOLLOW_CUH_

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::device {

/// Waits for the kernels ahead, and lets the next one be launched: before any access to memory.
/// GPUs before Hopper have no such launches.
__device__ __forceinline__ void follow() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
#endif
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_FOLLOW_CUH_
