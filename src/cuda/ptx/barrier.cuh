// Wraps barriers and fences: mbarrier (PTX ISA 9.7.13.15), named ones (9.7.13.1), proxy fences
// (9.7.13.4), programmatic dependent launch (9.7.13.13).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_BARRIER_CUH_
#define SLUICE_CUDA_PTX_BARRIER_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Address in the shared window, as PTX operands want it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Initialises an mbarrier that completes a phase after `arrivals` arrivals.
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

/// Makes initialised mbarriers visible to the asynchronous proxy.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

/// One arrival, with release semantics.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
               : "memory");
}

/// One arrival that also announces `bytes` of bulk copies.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Waits until the phase of the given parity is complete, with acquire semantics.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Whether the phase of the given parity is complete, after a short wait.
__device__ __forceinline__ uint32_t mbarrier_try(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done;
}

/// bar.sync: waits for `threads` threads of the CTA at named barrier `id`.
__device__ __forceinline__ void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive: arrives at named barrier `id` without waiting.
__device__ __forceinline__ void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// Orders this thread's ordinary shared-memory accesses before later ones of wgmma and bulk copies.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// Lets the next kernel of the stream start its preamble.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

/// Waits until the kernels before this one have finished and their writes are visible.
__device__ __forceinline__ void wait_for_dependencies() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

/// Waits for `threads` threads of the CTA at named barrier `id`. WHY not bar.sync: it asks that all
/// threads wait at one instruction of the program, and each role has a copy of its own.
__device__ __forceinline__ void role_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_BARRIER_CUH_
