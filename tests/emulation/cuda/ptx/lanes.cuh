// Emulates src/cuda/ptx/lanes.cuh: the same tree of additions, after one exchange.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_LANES_CUH_
#define SLUICE_CUDA_PTX_LANES_CUH_

#include <bit>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

/// Sum of number `i` over the lanes that differ from `lane` in bits kFirst .. kFirst + bits - 1.
inline float lane_sum(const emulation::Exchange& e, uint32_t lane, int first, int bits, int i) {
  if (bits == 0) return std::bit_cast<float>(e.words[lane][i]);
  const uint32_t other = lane ^ (1u << (first + bits - 1));
  return lane_sum(e, lane, first, bits - 1, i) + lane_sum(e, other, first, bits - 1, i);
}

/// Shows the warp x, and calls use(exchange, lane).
template <int kCount, class Use>
void with_all_lanes(const float (&x)[kCount], Use use) {
  static_assert(kCount <= 16);
  emulation::Exchange& e = emulation::exchange();
  const uint32_t lane = emulation::thread.x % 32;
  for (int i = 0; i < kCount; ++i) e.words[lane][i] = std::bit_cast<uint32_t>(x[i]);
  emulation::meet_warp();
  use(e, lane);
  emulation::meet_warp();
}

template <int kFirst, int kBits, int kCount>
void sum_over_lanes(float (&x)[kCount]) {
  with_all_lanes(x, [&](const auto& e, uint32_t lane) {
    for (int i = 0; i < kCount; ++i) x[i] = lane_sum(e, lane, kFirst, kBits, i);
  });
}

template <int kCount>
void sum_from_bit(int first, float (&x)[kCount]) {
  with_all_lanes(x, [&](const auto& e, uint32_t lane) {
    for (int i = 0; i < kCount; ++i) x[i] = lane_sum(e, lane, first, 5 - first, i);
  });
}

template <int kCount>
float fold_step(const float (&x)[kCount], uint32_t bit) {
  float sum = 0;
  with_all_lanes(x, [&](const auto& e, uint32_t lane) {
    sum = lane_sum(e, lane, static_cast<int>(bit), std::bit_width(unsigned{kCount}) - 1,
                   static_cast<int>(lane >> bit) % kCount);
  });
  return sum;
}

template <int kLanes>
float fold_over_lanes(const float (&x)[16]) {
  float sum = 0;
  with_all_lanes(x, [&](const auto& e, uint32_t lane) {
    sum = lane_sum(e, lane, 0, kLanes == 32 ? 5 : 4, static_cast<int>(lane % 16));
  });
  return sum;
}

inline uint32_t least_of_lanes(uint32_t x) {
  const float all[1] = {std::bit_cast<float>(x)};
  with_all_lanes(all, [&](const auto& e, uint32_t) {
    for (const auto& words : e.words) x = words[0] < x ? words[0] : x;
  });
  return x;
}

inline float from_lane(float x, int from) {
  const float all[1] = {x};
  float found = 0;
  with_all_lanes(
      all, [&](const auto& e, uint32_t) { found = std::bit_cast<float>(e.words[from % 32][0]); });
  return found;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_LANES_CUH_
