// Tells CTAs of another kernel that something is in memory (PTX ISA 8.10, 9.7.13).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SIGNAL_CUH_
#define SLUICE_CUDA_PTX_SIGNAL_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Who sees a signal() after this sees all that this thread has seen until here.
__device__ __forceinline__ void fence_release() {
  asm volatile("fence.acq_rel.gpu;\n" ::: "memory");
}

/// Adds to a number that other CTAs wait for.
__device__ __forceinline__ void signal(uint32_t* number, uint32_t x) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;\n" ::"l"(number), "r"(x) : "memory");
}

/// Reads such a number, and makes visible what was before the signals.
__device__ __forceinline__ uint32_t read_signal(const uint32_t* number) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];\n" : "=r"(x) : "l"(number) : "memory");
  return x;
}

/// What this thread has seen of global memory the copy engine sees from here on.
__device__ __forceinline__ void fence_global_copies() {
  asm volatile("fence.proxy.async.global;\n" ::: "memory");
}

/// Leaves the multiprocessor to others for a while.
__device__ __forceinline__ void pause(uint32_t nanoseconds) {
  asm volatile("nanosleep.u32 %0;\n" ::"r"(nanoseconds));
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SIGNAL_CUH_
