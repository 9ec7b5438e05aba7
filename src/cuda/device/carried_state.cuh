// Keeps a state in registers between chunks: loads it, updates it, stores it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_CARRIED_STATE_CUH_
#define SLUICE_CUDA_DEVICE_CARRIED_STATE_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::device {

/// A warp's rows 16 (warp % 4) + 64 b of S, b < kBlocks, and 8 kTiles columns.
template <int kBlocks, int kTiles>
using StatePart = tile::WarpAccumulator<kTiles>[kBlocks];

/// Calls use(k, column of the warp's 8 kTiles, number) for every number of a lane.
template <int kBlocks, int kTiles, class Use>
__device__ __forceinline__ void for_each_state_number(StatePart<kBlocks, kTiles>& S,
                                                      const Use& use) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    S[b].for_each_pair([&](int row, int column, float& x, float& y) {
      const int k = 64 * b + 16 * (tile::warp() % 4) + row;
      use(k, column, x);
      use(k, column + 1, y);
    });
  }
}

/// The state that a sequence starts from; zeros where slot < 0.
template <int kBlocks, int kTiles>
__device__ __forceinline__ void load_carried(const StageParams& p, int64_t slot, int64_t head,
                                             int64_t first_column, StatePart<kBlocks, kTiles>& S) {
  const auto& pool = p.state.initial.pool;
  const int64_t start = slot * pool.slot_stride + head * p.K * p.V;
  for_each_state_number<kBlocks, kTiles>(S, [&](int k, int column, float& x) {
    const int64_t element = start + k * p.row_step + (first_column + column) * p.column_step;
    x = slot < 0 ? 0.0f : load_written(pool.data, element, pool.number);
  });
}

template <int kBlocks, int kTiles>
__device__ __forceinline__ void store_carried(const StageParams& p, int64_t slot, int64_t head,
                                              int64_t first_column, StatePart<kBlocks, kTiles>& S) {
  if (slot < 0) return;
  const auto& pool = p.state.final.pool;
  const int64_t start = slot * pool.slot_stride + head * p.K * p.V;
  for_each_state_number<kBlocks, kTiles>(S, [&](int k, int column, float& x) {
    const int64_t element = start + k * p.row_step + (first_column + column) * p.column_step;
    store_number(pool.data, element, pool.number, x);
  });
}

/// S *= factor, 1 without gates.
template <int kBlocks, int kTiles>
__device__ __forceinline__ void scale_carried(StatePart<kBlocks, kTiles>& S, float factor) {
  for_each_state_number<kBlocks, kTiles>(S, [&](int, int, float& x) { x *= factor; });
}

/// Two numbers of a word times factors, rounded again.
template <class Io>
__device__ __forceinline__ uint32_t scale_pair(uint32_t word, float first, float second) {
  using P = tile::Packed<Io>;
  return P::pack(P::first(word) * first, P::second(word) * second);
}

/// S += k^T diag(exp(last - G)) v of 64 tokens: k are kBlocks tiles [token][k], v one
/// [token][column]. Without kScaled v is scaled already. NUM: what is scaled is rounded once more,
/// to Io.
template <class Io, bool kScaled, int kBlocks, int kTiles>
__device__ __forceinline__ void add_tokens(StatePart<kBlocks, kTiles>& S, uint32_t k, uint32_t v,
                                           int column, const float* G, float last) {
#pragma unroll
  for (int term = 0; term < 64; term += 16) {
    float factor[4];
#pragma unroll
    for (int i = 0; i < 4 && kScaled; ++i) {
      factor[i] = decay(last - G[term + tile::lane_column() + i % 2 + i / 2 * 8]);
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      uint32_t a[4];
      tile::load_left_turned(a, k + static_cast<uint32_t>(b) * tile::kTile, 16 * (tile::warp() % 4),
                             term);
#pragma unroll
      for (int i = 0; i < 4 && kScaled; ++i) {
        a[i] = scale_pair<Io>(a[i], factor[i / 2 * 2], factor[i / 2 * 2 + 1]);
      }
      tile::multiply_step<Io, false, kTiles>(S[b], a, v, term, column);
    }
  }
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_CARRIED_STATE_CUH_
