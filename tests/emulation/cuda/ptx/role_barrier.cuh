// Emulates src/cuda/ptx/role_barrier.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_
#define SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_

#include "emulator.hpp"

namespace sluice::cuda::ptx {

inline void role_barrier_sync(uint32_t id, uint32_t threads) {
  emulation::named_barrier(id, threads, true);
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ROLE_BARRIER_CUH_
