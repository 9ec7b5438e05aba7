// How a decode launch is cut up, from sizes alone. Results do not depend on it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_PLAN_GRID_HPP_
#define SLUICE_CUDA_KERNELS_DECODE_PLAN_GRID_HPP_

#include <algorithm>

#include "cuda/kernels/decode/config.h"

namespace sluice::cuda::decode {

/// A launch's work.
struct Work {
  int64_t units = 0;  ///< sequences times key heads
  int tiles = 0;      ///< of a unit
  int K = 0, r = 0, max_tokens = 0;
  bool layer = false;
  bool by_element = false;  ///< DecodeParams::by_element
};

/// K of the instance for key dimension K.
constexpr int rounded_k(int64_t K, bool by_element) noexcept {
  if (by_element) return 256;
  return K <= 64 ? 64 : (K <= 128 ? 128 : 256);
}

constexpr int divide_up(int a, int b) noexcept { return (a + b - 1) / b; }

constexpr size_t shared_bytes(const Work& w, const Grid& grid) noexcept {
  return StageSizes{rounded_k(w.K, w.by_element), w.max_tokens, w.r, grid.tiles, w.layer}.bytes();
}

/// `ctas` a unit.
constexpr Grid grid_of(const Work& w, int ctas, int threads) noexcept {
  return {ctas, divide_up(w.tiles, ctas), threads};
}

/// The delta rule alone: warps have nothing to do with each other, so tiles are dealt out until
/// every multiprocessor has a CTA, four tiles (one a warp) at a time; up to sixteen, where there
/// are three rounds of CTAs all the same, so that fewer of them look for slots and stage q and k.
constexpr Grid plan_step(const Work& w, int processors) noexcept {
  constexpr int kThreads = 128, kResident = 4, kRounds = 3;
  const int64_t tiles = w.units * w.tiles;
  int per_cta = 16;
  while (per_cta > 4 && tiles / per_cta < int64_t{processors} * kResident * kRounds) per_cta /= 2;
  while (per_cta > 1 && tiles / per_cta < int64_t{processors} * 3 / 4) per_cta /= 2;
  return grid_of(w, divide_up(w.tiles, std::min(per_cta, w.tiles)), kThreads);
}

/// A layer step: the CTAs of a unit repeat its convolution of q and k and have to wait for each
/// other, so there are no more of them than it takes to have one on every multiprocessor.
constexpr Grid plan_layer(const Work& w, int processors) noexcept {
  int ctas = 1;
  while (ctas < kMaxClusterCtas && 2 * ctas <= w.tiles && w.units * ctas < processors) ctas *= 2;
  return grid_of(w, ctas, kMaxThreads);
}

/// The launch's grid; its shared memory is above kMaxSharedBytes where no grid's fits.
constexpr Grid plan_grid(const Work& w, int processors) noexcept {
  Grid grid = w.layer ? plan_layer(w, processors) : plan_step(w, processors);
  const int most = w.layer ? std::min(kMaxClusterCtas, w.tiles) : w.tiles;
  while (shared_bytes(w, grid) > kMaxSharedBytes && grid.ctas < most) {
    grid = grid_of(w, std::min(2 * grid.ctas, most), grid.threads);
  }
  return grid;
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_PLAN_GRID_HPP_
