// Stores to the shared memory of other CTAs of a cluster, counted where they arrive (PTX
// ISA 9.7.9.12).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_STORE_ASYNC_CUH_
#define SLUICE_CUDA_PTX_STORE_ASYNC_CUH_

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

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

#endif  // SLUICE_CUDA_PTX_STORE_ASYNC_CUH_
