// Emulates src/cuda/ptx/cluster.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_CLUSTER_CUH_
#define SLUICE_CUDA_PTX_CLUSTER_CUH_

#include <cstring>

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

inline void cluster_arrive() { emulation::cluster_arrive(); }
inline void cluster_arrive_relaxed() { emulation::cluster_arrive(); }
inline void cluster_wait() { emulation::cluster_wait(); }
inline float load_remote(const float* own, uint32_t rank) {
  float x;
  std::memcpy(&x, emulation::remote_shared(own, rank), sizeof x);
  return x;
}
inline uint8_t* dynamic_memory() { return emulation::own_shared(); }

/// Bytes that arrive some time later.
template <class T>
void store_async(T* own, const T& x, uint64_t* barrier, uint32_t rank) {
  uint8_t* const to = emulation::remote_shared(own, rank);
  auto* const counter = reinterpret_cast<Mbarrier*>(emulation::remote_shared(barrier, rank));
  emulation::copy_later(
      [=] {
        std::memcpy(to, &x, sizeof x);
        counter->bytes -= static_cast<int32_t>(sizeof x);
        counter->settle();
      },
      false);
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_CLUSTER_CUH_
