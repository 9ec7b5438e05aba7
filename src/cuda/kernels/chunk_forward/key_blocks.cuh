// Prepares key-wise gates, third part: the products of keys and queries of different blocks of 16
// tokens (levels 16 and 32), and what goes to the record in place of what they needed.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_BLOCKS_CUH_

#include "cuda/kernels/chunk_forward/key_levels.cuh"

namespace sluice::cuda::chunk_forward {

/// A lane's numbers of one row of decays, channels from `at` on, as those of an operand's words are.
__device__ __forceinline__ void load_decays(uint32_t (&out)[2], const __half* at) {
  out[0] = *reinterpret_cast<const uint32_t*>(at);
  out[1] = *reinterpret_cast<const uint32_t*>(at + 8);
}

/// Decays of the four channels that a lane has in a block of 16 tokens x 16 channels.
template <class Decay>
struct ChannelDecays {
  float2 x[2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};

  __device__ __forceinline__ void load(const float* at) {
    x[0] = *reinterpret_cast<const float2*>(at);
    x[1] = *reinterpret_cast<const float2*>(at + 8);
  }
  /// Word i of a block, and what fp16 has left of it, times these.
  __device__ __forceinline__ float2 times(int i, uint32_t word, uint32_t rest) const {
    using Half = tile::Packed<__half>;
    return {(Half::first(word) + Half::first(rest)) * x[i / 2].x,
            (Half::second(word) + Half::second(rest)) * x[i / 2].y};
  }
};
template <>
struct ChannelDecays<__half> {
  uint32_t x[2] = {0x3c003c00u, 0x3c003c00u};

  __device__ __forceinline__ void load(const __half* at) { load_decays(x, at); }
  __device__ __forceinline__ float2 times(int i, uint32_t word, uint32_t) const {
    const uint32_t product = ptx::multiply_f16(word, x[i / 2]);
    return {tile::Packed<__half>::first(product), tile::Packed<__half>::second(product)};
  }
};

/// A block of fp16 numbers, plus what fp16 left of them, times a decay a channel and a factor a row,
/// as type Io.
template <class C>
__device__ __forceinline__ void fade_block(uint32_t (&x)[4], const uint32_t (&rests)[4],
                                           const ChannelDecays<typename C::Decay>& decays,
                                           const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = decays.times(i, x[i], rests[i]);
    x[i] = tile::Packed<typename C::Io>::pack(two.x * factor[i % 2], two.y * factor[i % 2]);
  }
}

/// M and P left of the diagonal block of 16 tokens. Number 4 t + 2 i + e of a block is of row
/// lane_row() + 8 i, column 8 t + lane_column() + e.
struct PairSums {
  float left[3][8] = {};
};

/// Level 16 or 32: block (block, kColumn) of M and P, 16 channels of which the lane's first is
/// `channel`; `address`: of the right operand, k of block kColumn. Keys of blocks further back decay
/// on over those between.
template <class C, int kColumn>
__device__ __forceinline__ void add_block(const KeyTables<C>& s, uint32_t address, int block,
                                          int channel, const uint32_t (&k)[4],
                                          const uint32_t (&q)[4], PairSums& keys,
                                          PairSums& queries) {
  if (kColumn >= block) return;
  uint32_t b[4];
  ptx::ldmatrix_x4(b, address);
  if (kColumn < 2 && block > kColumn + 1) {
    uint32_t decay[2];
    load_decays(decay, &s.between[kColumn][channel]);
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i] = ptx::multiply_f16(b[i], decay[i % 2]);
    if (kColumn == 0 && block == 3) {
      load_decays(decay, &s.between[1][channel]);
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = ptx::multiply_f16(b[i], decay[i % 2]);
    }
  }
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    ptx::mma_f16(keys.left[kColumn] + 4 * t, k, b + 2 * t);
    ptx::mma_f16(queries.left[kColumn] + 4 * t, q, b + 2 * t);
  }
}

/// Factors of a lane's two rows of k~ and k^, and of q~.
struct LaneRows {
  float k[2], q[2];
};

/// Rests of a block of q~ or k^; zeros where there are none.
template <class C, bool kLate>
__device__ __forceinline__ void load_rests(uint32_t (&out)[4], const KeyPrepareMemory<C>& s,
                                           int block, int i) {
  if constexpr (C::kRests) {
    const auto& tile = kLate ? s.k_late_rest : s.q_rest;
    ptx::ldmatrix_x4(out, BlockTile(tile.block(i / 4)).block(block, i % 4));
  }
}

/// Channels 16 i and following of a block: the products of levels 16 and 32, and q~ and k~ in place.
template <class C>
__device__ __forceinline__ void finish_step(const KeyPrepareMemory<C>& s, int block, int i,
                                            const LaneRows& rows, PairSums& keys,
                                            PairSums& queries) {
  const KeyTables<C>& tables = s.tables;
  const int channel = 16 * i + tile::lane_column(), column = i % 4;
  const BlockTile k_tile(s.tiles.k.block(i / 4)), q_tile(s.tiles.q.block(i / 4));
  const uint32_t faded =
      right_block(s.tiles.k_late.block(i / 4)) ^ static_cast<uint32_t>(column * 32);
  uint32_t k[4], q[4];
  ptx::ldmatrix_x4(k, k_tile.block(block, column));
  ptx::ldmatrix_x4(q, q_tile.block(block, column));
  add_block<C, 0>(tables, faded, block, channel, k, q, keys, queries);
  add_block<C, 1>(tables, faded + 2048, block, channel, k, q, keys, queries);
  add_block<C, 2>(tables, faded + 4096, block, channel, k, q, keys, queries);
  ChannelDecays<typename C::Decay> before;
  if (block > 0) before.load(&tables.before[block - 1][channel]);
  uint32_t rests[4] = {};
  fade_block<C>(k, rests, before, rows.k);
  ptx::stmatrix_x4(k_tile.block(block, column), k);
  load_rests<C, false>(rests, s, block, i);
  fade_block<C>(q, rests, before, rows.q);
  ptx::stmatrix_x4(q_tile.block(block, column), q);
}

/// k^ of a block in place, channels 16 i and following.
template <class C>
__device__ __forceinline__ void finish_late(const KeyPrepareMemory<C>& s, int block, int i,
                                            const float (&factor)[2]) {
  const BlockTile tile(s.tiles.k_late.block(i / 4));
  uint32_t x[4];
  ptx::ldmatrix_x4(x, tile.block(block, i % 4));
  ChannelDecays<typename C::Decay> after;
  if (block < 3) after.load(&s.tables.after[block][16 * i + tile::lane_column()]);
  uint32_t rests[4] = {};
  load_rests<C, true>(rests, s, block, i);
  fade_block<C>(x, rests, after, factor);
  ptx::stmatrix_x4(tile.block(block, i % 4), x);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_BLOCKS_CUH_
