// Emulates src/cuda/ptx/lanes.cuh: the same tree of additions, after one exchange.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_LANES_CUH_
#define SLUICE_CUDA_PTX_LANES_CUH_

#include <bit>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

/// Sum of number `i` over the lanes that differ from `lane` in bits kFirst .. kFirst + bits - 1.
template <int kFirst>
float lane_sum(const emulation::Exchange& e, uint32_t lane, int bits, int i) {
  if (bits == 0) return std::bit_cast<float>(e.words[lane][i]);
  const uint32_t other = lane ^ (1u << (kFirst + bits - 1));
  return lane_sum<kFirst>(e, lane, bits - 1, i) + lane_sum<kFirst>(e, other, bits - 1, i);
}

template <int kFirst, int kBits, int kCount>
void sum_over_lanes(float (&x)[kCount]) {
  static_assert(kCount <= 16);
  emulation::Exchange& e = emulation::exchange();
  const uint32_t lane = emulation::thread.x % 32;
  for (int i = 0; i < kCount; ++i) e.words[lane][i] = std::bit_cast<uint32_t>(x[i]);
  emulation::meet_warp();
  for (int i = 0; i < kCount; ++i) x[i] = lane_sum<kFirst>(e, lane, kBits, i);
  emulation::meet_warp();
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_LANES_CUH_
