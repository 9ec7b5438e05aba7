// Emulates src/cuda/ptx/signal.cuh: launches follow each other here; emulation::asked_for may hold
// signals back.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SIGNAL_CUH_
#define SLUICE_CUDA_PTX_SIGNAL_CUH_

#include "emulator.hpp"

namespace sluice::cuda::ptx {

inline void fence_release() {}
inline void signal(uint32_t* number, uint32_t x) { *number += x; }
inline uint32_t read_signal(const uint32_t* number) {
  if (emulation::asked_for) emulation::asked_for(number);
  return *number;
}
inline void fence_global_copies() {}
inline void pause(uint32_t) {}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SIGNAL_CUH_
