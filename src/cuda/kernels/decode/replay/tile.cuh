// Moves a tile of S0, in the order of tensor cores, between registers and global memory.
//
// A warp has 32 columns and some blocks of 16 rows; a lane of each block a square of four rows and
// four neighbouring columns. Where tiles are narrower, warps have fewer blocks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_TILE_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_TILE_CUH_

#include "cuda/kernels/decode/replay/params.h"
#include "cuda/kernels/decode/tile.cuh"

namespace sluice::cuda::decode {

inline constexpr int kBlocks = kVectors / 4;  ///< of 16 rows, that a warp has at most

/// The lane's place in a tile. Fragments of mma_tf32(): `quad` is the row of A and the column of B,
/// `member` what the product sums over, and the two columns of D.
template <class C>
struct ReplayLane {
  int warp, index;  ///< of the warp's lanes
  int quad, member;
  int row_part;     ///< which of the warps that share 32 columns
  int blocks;       ///< 1, 2 or 4
  int row, column;  ///< of the lane's first square

  __device__ __forceinline__ explicit ReplayLane(const Grid& grid)
      : warp(static_cast<int>(threadIdx.x / 32)),
        index(static_cast<int>(threadIdx.x % 32)),
        quad(index / 4),
        member(index % 4),
        row_part(warp >> (grid.column_bits - kMinColumnBits)),
        blocks(1 << (grid.column_bits - kMinColumnBits)),
        row(16 * row_part * blocks + 4 * member),
        column(32 * (warp & (blocks - 1)) + 4 * quad) {}
};

/// Numbers of S0 that lie side by side are a vector: four columns of a row ([V,K]: four rows of a
/// column). Vector 4 b + i is number i of block b's square.
template <class C>
struct ReplayWalk {
  char* at;
  int next_vector, next_block;  ///< bytes; BOUND: a head's state has at most 128 V elements
  int rows_left, columns_left;  ///< of K and V, from the first square's first element
  int blocks;

  __device__ __forceinline__ ReplayWalk(const DecodeParams& p, const StatePool& pool, int64_t slot,
                                        const Place& place, const ReplayLane<C>& lane)
      : blocks(lane.blocks) {
    const int bytes = C::kPacked ? 2 : 4, column = place.column + lane.column;
    const int origin = C::kVk ? column * p.K + lane.row : lane.row * p.V + column;
    const int64_t head = slot * pool.slot_stride + int64_t{place.head} * p.K * p.V;
    at = static_cast<char*>(pool.data) + (head + origin) * bytes;
    next_vector = (C::kVk ? p.K : p.V) * bytes;
    next_block = 16 * (C::kVk ? 1 : p.V) * bytes - 3 * next_vector;
    rows_left = p.K - lane.row, columns_left = p.V - column;
  }
  /// Whether vector m exists. K and V are multiples of four: all of it does or nothing.
  __device__ __forceinline__ bool exists(int m) const {
    const int row = 16 * (m / 4) + (C::kVk ? 0 : m % 4), column = C::kVk ? m % 4 : 0;
    return m / 4 < blocks && row < rows_left && column < columns_left;
  }
  __device__ __forceinline__ void next(int m) { at += m % 4 == 3 ? next_block : next_vector; }
};

template <class C>
__device__ __forceinline__ void load_vector(uint32_t (&words)[Tile<C>::kWords], const char* address,
                                            uint64_t policy) {
  if constexpr (C::kPacked) {
    ptx::load_stream_8(words, address, policy);
  } else {
    ptx::load_stream_16(words, address, policy);
  }
}

/// Requests the tile; nothing waits for it here. Zeros where the sequence has no state, and past K
/// and V. WHY not through the read-only cache: this launch may write the pool.
template <class C>
__device__ __forceinline__ void load_replay_tile(const DecodeParams& p, const Unit& unit,
                                                 const ReplayLane<C>& lane, Tile<C>& tile) {
  const Place at = place_of(p, unit, unit.first);
  ReplayWalk<C> walk(p, p.state.initial.pool, unit.seq.read, at, lane);
  const uint64_t policy = ptx::evict_first();
  // PERF a tile without borders needs neither zeros nor conditions
  const bool whole = p.K == C::kK && at.column + 32 * kBlocks <= p.V && lane.blocks == kBlocks;
  if (whole && unit.seq.read >= 0) {
#pragma unroll
    for (int m = 0; m < kVectors; walk.next(m++)) load_vector<C>(tile.words[m], walk.at, policy);
    return;
  }
  tile.clear();
  if (unit.seq.read < 0) return;
#pragma unroll
  for (int m = 0; m < kVectors; walk.next(m++)) {
    if (walk.exists(m)) load_vector<C>(tile.words[m], walk.at, policy);
  }
}

template <class C>
__device__ __forceinline__ void store_replay_tile(const DecodeParams& p, const Unit& unit,
                                                  const ReplayLane<C>& lane, const Tile<C>& tile) {
  ReplayWalk<C> walk(p, p.state.final.pool, unit.seq.write, place_of(p, unit, unit.first), lane);
  const uint64_t policy = ptx::evict_first();
#pragma unroll
  for (int m = 0; m < kVectors; walk.next(m++)) {
    if (!walk.exists(m)) continue;
    if constexpr (C::kPacked) {
      ptx::store_stream_8(walk.at, tile.words[m], policy);
    } else {
      ptx::store_stream_16(walk.at, tile.words[m], policy);
    }
  }
}

/// The square of block b, by row and column.
template <class C, class Form>
__device__ __forceinline__ void get_square(Tile<C>& tile, int b, float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float four[4];
    tile.forget_converted(4 * b + i);
    Form::get(tile.words[4 * b + i], four);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[C::kVk ? j : i][C::kVk ? i : j] = four[j];
  }
}

template <class C, class Form>
__device__ __forceinline__ void set_square(Tile<C>& tile, int b, const float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = x[C::kVk ? j : i][C::kVk ? i : j];
    Form::set(tile.words[4 * b + i], four);
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_TILE_CUH_
