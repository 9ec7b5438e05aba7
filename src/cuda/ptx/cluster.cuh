// Wraps clusters of CTAs: their barrier (PTX ISA 9.7.13.4), each other's shared memory (9.7.9.22),
// and stores to it that are counted where they arrive (9.7.9.12).
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

/// Sends 16 bytes to where `own` lies in the shared memory of the cluster's CTA `rank`; its
/// mbarrier where `barrier` lies here counts them once they are there.
__device__ __forceinline__ void store_async(float4* own, const float4& x, uint64_t* barrier,
                                            uint32_t rank) {
  asm volatile(
      "{.reg .u32 remote, counter;\n"
      "mapa.shared::cluster.u32 remote, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote],"
      " {%3, %4, %5, %6}, [counter];}\n" ::"r"(shared_address(own)),
      "r"(shared_address(barrier)), "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
}
/// Likewise 4 bytes.
__device__ __forceinline__ void store_async(float* own, float x, uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{.reg .u32 remote, counter;\n"
      "mapa.shared::cluster.u32 remote, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [remote], %3, "
      "[counter];}\n" ::"r"(shared_address(own)),
      "r"(shared_address(barrier)), "r"(rank), "f"(x)
      : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_CLUSTER_CUH_
