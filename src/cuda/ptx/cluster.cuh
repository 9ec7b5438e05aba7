// Wraps clusters of CTAs: their barrier (PTX ISA 9.7.13.4), each other's shared memory (9.7.9.22).
// Kernels launched without clusters have clusters of one CTA.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_CLUSTER_CUH_
#define SLUICE_CUDA_PTX_CLUSTER_CUH_

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

/// Arrives at the cluster's barrier with release semantics. WHY not the aligned form: it asks that
/// a warp's lanes arrive together, which code behind branches cannot promise.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
}

/// Arrives without ordering this thread's writes: enough where it has only read, and has used what
/// it read. PERF the release waits until all of its loads and stores have come to an end.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;\n" ::: "memory");
}

/// Waits until all threads of the cluster have arrived, with acquire semantics; each thread arrives
/// once before it waits.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}

/// The number in the shared memory of the cluster's CTA `rank` that lies where `own` lies here.
__device__ __forceinline__ float load_remote(const float* own, uint32_t rank) {
  float x;
  asm volatile(
      "{.reg .u32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote];}\n"
      : "=f"(x)
      : "r"(shared_address(own)), "r"(rank)
      : "memory");
  return x;
}

/// Dynamic shared memory of the CTA, 1024-byte aligned.
__device__ __forceinline__ uint8_t* dynamic_memory() {
  extern __shared__ __align__(1024) uint8_t sluice_dynamic_memory[];
  return sluice_dynamic_memory;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_CLUSTER_CUH_
