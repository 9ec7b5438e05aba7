// Copies from global to shared memory by threads that do not wait (PTX ISA 9.7.9.25.3).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
#define SLUICE_CUDA_PTX_ASYNC_COPY_CUH_

#include <cstdint>

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

/// 16 bytes from an aligned global to an aligned shared address, past the L1; zeros, and no look at
/// memory, unless `wanted`.
__device__ __forceinline__ void copy_async_16(uint32_t to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(wanted ? 16 : 0)
               : "memory");
}

/// kBytes (8 or 16) from an aligned global address to aligned shared memory; zeros, and no look at
/// memory, unless `wanted`. Waited for by wait_for_all_copies().
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(to)),
               "l"(from), "n"(kBytes), "r"(wanted ? kBytes : 0)
               : "memory");
}

/// Waits until all copies of the calling thread are done.
__device__ __forceinline__ void wait_for_all_copies() {
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}

/// Ends the calling thread's group of copies.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// Waits until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
