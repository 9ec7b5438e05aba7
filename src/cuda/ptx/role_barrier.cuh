// Wraps the named barrier that roles reach from branches of their own (PTX ISA 9.7.13.1).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_
#define SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Waits for `threads` threads of the CTA at named barrier `id`. WHY not bar.sync: it asks that all
/// threads wait at one instruction of the program, and each role has a copy of its own.
__device__ __forceinline__ void role_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_
