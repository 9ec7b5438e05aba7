// Chooses how launches of the decode kernels for any case are cut up, from sizes alone. Results do
// not depend on it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_PLAN_GRID_H_
#define SLUICE_CUDA_DECODE_PLAN_GRID_H_

#include <algorithm>

#include "cuda/kernels/decode/replay/params.h"

namespace sluice::cuda::decode {

/// A launch's work.
struct Work {
  int64_t units = 0;  ///< sequences times key heads
  int V = 0, K = 0, r = 0, max_tokens = 0;
  bool layer = false;
  bool by_element = false;  ///< DecodeParams::by_element
  bool replay = false;      ///< with a replay ring
  bool key_gates = false;
};

/// K of the instance for key dimension K.
constexpr int rounded_k(int64_t K, bool by_element) noexcept {
  if (by_element) return 256;
  return K <= 64 ? 64 : (K <= 128 ? 128 : 256);
}

constexpr int divide_up(int a, int b) noexcept { return (a + b - 1) / b; }

constexpr int tiles_per_head(int V, int column_bits) noexcept {
  return divide_up(V, 1 << column_bits);
}

/// Dynamic shared memory of a CTA of a step without a replay ring.
constexpr size_t shared_bytes(const Work& w, const Grid& grid) noexcept {
  const int K = rounded_k(w.K, w.by_element);
  return TokenBufferSizes{K, w.max_tokens, w.r, grid, w.layer, w.key_gates}.bytes();
}

/// Tiles of a unit.
constexpr int tiles_of(const Work& w, int column_bits) noexcept {
  return w.r * tiles_per_head(w.V, column_bits);
}

/// The widest tile, no wider than V needs.
constexpr int widest(const Work& w) noexcept {
  int bits = max_column_bits(rounded_k(w.K, w.by_element));
  while (bits > kMinColumnBits && (1 << (bits - 1)) >= w.V) --bits;
  return bits;
}

/// CTAs that leave few multiprocessors without one.
constexpr int64_t enough_ctas(int processors) noexcept { return int64_t{processors} * 3 / 4; }

/// The delta rule alone: one tile a CTA. PERF whole heads are what memory likes best (64 KiB in a
/// row); they are cut only as long as multiprocessors have nothing to do.
constexpr Grid plan_step(const Work& w, int processors) noexcept {
  int bits = widest(w);
  while (bits > kMinColumnBits && w.units * tiles_of(w, bits) < enough_ctas(processors)) --bits;
  return {tiles_of(w, bits), 1, bits};
}

constexpr Grid layer_grid(const Work& w, int ctas) noexcept {
  int bits = widest(w);
  while (bits > kMinColumnBits && tiles_of(w, bits) < ctas) --bits;
  return {ctas, divide_up(tiles_of(w, bits), ctas), bits};
}

/// A layer step: the CTAs of a unit repeat its convolution of q and k and have to wait for each
/// other, so there are no more of them than it takes to have one on every multiprocessor, or two
/// where heads stay whole.
constexpr Grid plan_layer(const Work& w, int processors) noexcept {
  int ctas = 1;
  const auto may_double = [&](int tiles) { return 2 * ctas <= std::min(kMaxClusterCtas, tiles); };
  while (may_double(tiles_of(w, kMinColumnBits)) && w.units * ctas < enough_ctas(processors)) {
    ctas *= 2;
  }
  while (may_double(tiles_of(w, widest(w))) && w.units * ctas < 2 * enough_ctas(processors)) {
    ctas *= 2;
  }
  return layer_grid(w, ctas);
}

/// A layer step with a replay ring: one tile a CTA as in a step, and no more of them than a cluster
/// takes, where that is possible.
constexpr Grid plan_replay_layer(const Work& w, int processors) noexcept {
  int bits = plan_step(w, processors).column_bits;
  while (bits < widest(w) && tiles_of(w, bits) > kMaxClusterCtas) ++bits;
  return {tiles_of(w, bits), 1, bits};
}

/// The launch's grid; its shared memory is above kMaxSharedBytes where no grid's fits.
constexpr Grid plan_grid(const Work& w, int processors) noexcept {
  if (!w.layer) return plan_step(w, processors);
  if (w.replay) return plan_replay_layer(w, processors);
  Grid grid = plan_layer(w, processors);
  const int most = std::min(kMaxClusterCtas, tiles_of(w, kMinColumnBits));
  while (shared_bytes(w, grid) > kMaxSharedBytes && grid.ctas < most) {
    grid = layer_grid(w, std::min(2 * grid.ctas, most));
  }
  return grid;
}

/// Sizes of a CTA's shared memory of a step with a replay ring.
constexpr ReplaySizes replay_sizes(const Work& w, const Grid& grid) noexcept {
  return {rounded_k(w.K, false), grid.column_bits, w.max_tokens, w.r, w.layer, grid.ctas};
}

/// How the kernels for any case run a step; bits do not depend on it.
struct StepPlan {
  Grid grid;
  bool by_element;  ///< DecodeParams::by_element
  bool prefetch;    ///< DecodeParams::prefetch
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_PLAN_GRID_H_
