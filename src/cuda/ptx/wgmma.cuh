// Orders asynchronous warpgroup matrix instructions (PTX ISA 9.7.15.7), with the register
// fences that keep the compiler from moving accumulator accesses across them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_CUH_
#define SLUICE_CUDA_PTX_WGMMA_CUH_

#include "cuda/ptx/wgmma_shapes.cuh"

namespace sluice::cuda::ptx {

/// Orders this warpgroup's register accesses before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/// Closes a group of wgmma.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/// Waits until at most kPending of the newest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// Makes the compiler believe that the registers change here, so that no access moves across.
template <size_t kSize>
__device__ __forceinline__ void pin(float (&r)[kSize]) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

/// The same for packed operand fragments.
template <size_t kSize>
__device__ __forceinline__ void pin(uint32_t (&r)[kSize]) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

/// setmaxnreg (PTX ISA 9.7.19.5): gives registers back. kCount is a multiple of 8 in [24, 256].
template <int kCount>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kCount));
}

/// setmaxnreg: takes registers, waiting until the pool has them.
template <int kCount>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kCount));
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_CUH_
