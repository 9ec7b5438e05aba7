// Emulates src/cuda/ptx/store_async.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_STORE_ASYNC_CUH_
#define SLUICE_CUDA_PTX_STORE_ASYNC_CUH_

#include <cstring>

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

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

#endif  // SLUICE_CUDA_PTX_STORE_ASYNC_CUH_
