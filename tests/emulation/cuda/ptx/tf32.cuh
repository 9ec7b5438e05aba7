// Emulates src/cuda/ptx/tf32.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_TF32_CUH_
#define SLUICE_CUDA_PTX_TF32_CUH_

#include <cstdint>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

/// Words of a lane: A by (row / 8, k / 4), B by k / 4.
inline void mma_tf32(float* d, const uint32_t* a, const uint32_t* b) {
  const uint32_t lane = emulation::thread.x % 32;
  uint32_t(&words)[16] = emulation::exchange().words[lane];
  for (int i = 0; i < 4; ++i) words[i] = a[i];
  for (int i = 0; i < 2; ++i) words[8 + i] = b[i];
  emulation::meet_warp();
  const auto number = [](uint32_t word) { return __uint_as_float(word & 0xffffe000u); };
  const emulation::Exchange& e = emulation::exchange();
  for (uint32_t at = 0; at < 4; ++at) {
    const uint32_t row = lane / 4, upper = at / 2, column = lane % 4 * 2 + at % 2;
    for (uint32_t k = 0; k < 8; ++k) {
      d[at] += number(e.words[row * 4 + k % 4][k / 4 * 2 + upper]) *
               number(e.words[column * 4 + k % 4][8 + k / 4]);
    }
  }
  emulation::meet_warp();
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_TF32_CUH_
