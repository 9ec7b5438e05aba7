// Prepares key-wise gates, second part: scaled tiles, and the products of keys and
// queries of a chunk without an exponential of a positive number.
//
// M_ij = sum over channels of k_i k_j e^{G_i - G_j}, j < i, is no product of two matrices. For a pair
// let e be the last token of the even one of the two neighbouring blocks of b tokens, b a power of
// two, that j and i lie in: e^{G_i - G_j} = e^{G_i - G_e} e^{G_e - G_j}, both exponents <= 0. So each
// level b is a product of tiles whose rows are scaled by one of these. Levels 1 to 8 lie in blocks of
// 16 tokens, whose rows one warp has as fragments; 16 and 32 are products with other warps' blocks.
// An 8x8 product of a level has useless numbers too, which other levels replace.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_

#include "cuda/kernels/chunk_forward/key_config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

using tile::BlockTile, tile::exp2_fast;

/// A lane's numbers of 16 rows x 16 channels in the order of a left operand of mma: number i is of
/// row lane_row() + 8 (i % 2), channels lane_column() + 8 (i / 2) and the next.
struct LaneBlock {
  float2 x[4];
};

__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
  return make_float2(a.x * b.x, a.y * b.y);
}
__device__ __forceinline__ float2 exp2_pair(float2 x) {
  return make_float2(exp2_fast(x.x), exp2_fast(x.y));
}
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float2 x) {
  return tile::Packed<T>::pack(x.x, x.y);
}

/// What a lane's two rows of k and q are scaled by to unit length, and how long they are in what
/// goes to memory.
struct LaneRows {
  float k_norm[2], q_norm[2], k_length[2], q_length[2];
};

/// Products of a block of 16 tokens: of levels 4, 2, 1 in both 8x8 blocks on the diagonal, and of
/// level 8. Numbers 0, 1 are keys' (M), 2, 3 queries' (P).
struct DiagonalSums {
  float level[3][2][4] = {};
  float low[4] = {};
  float own[2] = {};  ///< queries and keys of the lane's two tokens, the lane's channels
};

/// One half of the channels of the tiles that a warp reads and writes. PERF addresses once a chunk.
template <class C>
struct HalfTiles {
  BlockTile q, k, k_late;
  int channel;  ///< the lane's first one
  int column;   ///< of the first 16 channels, in blocks of 16

  __device__ __forceinline__ HalfTiles(const KeyPrepareMemory<C>& s, int half)
      : q(s.q.block(kWide ? half : 0)),
        k(s.k.block(kWide ? half : 0)),
        k_late(s.k_late.block(kWide ? half : 0)),
        channel(half * C::kK / 2 + tile::lane_column()),
        column(kWide ? 0 : 2 * half) {}
  /// k times its decay up to the end of its block.
  __device__ __forceinline__ static BlockTile faded(const KeyPrepareMemory<C>& s, int half) {
    return BlockTile(s.faded.block(kWide ? half : 0));
  }

 private:
  static constexpr bool kWide = C::kK == 128;  // a tile's blocks of 64 columns are the halves
};

/// Numbers of type Io of a block, a factor a row.
template <class Io>
__device__ __forceinline__ LaneBlock load_block(uint32_t address, const float (&norm)[2]) {
  uint32_t raw[4];
  ptx::ldmatrix_x4(raw, address);
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[i] = make_float2(tile::Packed<Io>::first(raw[i]) * norm[i % 2],
                           tile::Packed<Io>::second(raw[i]) * norm[i % 2]);
  }
  return out;
}

/// Sums of a block's rows; `at`: the lane's first channel in the block's first row.
template <int kPitch>
__device__ __forceinline__ LaneBlock load_sums(const float* at) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[i] = *reinterpret_cast<const float2*>(at + (tile::lane_row() + 8 * (i % 2)) * kPitch +
                                                8 * (i / 2));
  }
  return out;
}

/// The decays of level kLevel: of rows of an odd block since the even one's end, and of those of an
/// even block up to it. NUM: sums never grow, since log gates are <= 0, so that the difference to the
/// end's has the wrong sign in even blocks alone.
template <int kLevel, int kPitch>
__device__ __forceinline__ LaneBlock level_decays(const LaneBlock& sums, const float* at) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tile::lane_row() + 8 * (i % 2);
    const int end = (row & ~(2 * kLevel - 1)) + kLevel - 1;
    const float2 pivot = *reinterpret_cast<const float2*>(at + end * kPitch + 8 * (i / 2));
    out.x[i] = exp2_pair(make_float2(-fabsf(sums.x[i].x - pivot.x), -fabsf(sums.x[i].y - pivot.y)));
  }
  return out;
}

/// Rows of k or q as operands of levels. WHY two ways: the rounding of decays to fp16 is nothing
/// beside bfloat16's, and takes fewer instructions than products in float32; beside fp16's it is
/// seen.
template <class Io>
struct LevelRows {
  LaneBlock x;
  __device__ __forceinline__ explicit LevelRows(const LaneBlock& from) : x(from) {}
  __device__ __forceinline__ uint32_t scaled(int i, float2 decay) const {
    return pack_pair<__half>(x.x[i] * decay);
  }
};
template <>
struct LevelRows<__nv_bfloat16> {
  uint32_t x[4];
  __device__ __forceinline__ explicit LevelRows(const LaneBlock& from) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = pack_pair<__half>(from.x[i]);
  }
  __device__ __forceinline__ uint32_t scaled(int i, float2 decay) const {
    return ptx::multiply_f16(x[i], pack_pair<__half>(decay));
  }
};

/// Level 8: the 8 odd rows, of k and of q, beside the 8 even ones.
template <class Io>
__device__ __forceinline__ void add_low(DiagonalSums& sum, const LevelRows<Io>& k,
                                        const LevelRows<Io>& q, const LaneBlock& decay) {
  const uint32_t left[4] = {k.scaled(1, decay.x[1]), q.scaled(1, decay.x[1]),
                            k.scaled(3, decay.x[3]), q.scaled(3, decay.x[3])};
  const uint32_t right[2] = {k.scaled(0, decay.x[0]), k.scaled(2, decay.x[2])};
  ptx::mma_f16(sum.low, left, right);
}

/// A level inside both 8x8 blocks: rows of k and of q beside those of k, scaled alike.
template <class Io>
__device__ __forceinline__ void add_level(float (&sum)[2][4], const LevelRows<Io>& k,
                                          const LevelRows<Io>& q, const LaneBlock& decay) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int low = half, high = 2 + half;
    const uint32_t left[4] = {k.scaled(low, decay.x[low]), q.scaled(low, decay.x[low]),
                              k.scaled(high, decay.x[high]), q.scaled(high, decay.x[high])};
    const uint32_t right[2] = {left[0], left[2]};
    ptx::mma_f16(sum[half], left, right);
  }
}

/// x times one decay a channel, and a length a row unless all rows have length 1; packed.
template <class C>
__device__ __forceinline__ void pack_rows(uint32_t (&out)[4], const LaneBlock& x,
                                          const float2 (&decay)[2], const float (&length)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float2 number = x.x[i] * decay[i / 2];
    if constexpr (!C::kL2Norm) {
      number = make_float2(number.x * length[i % 2], number.y * length[i % 2]);
    }
    out[i] = pack_pair<typename C::Io>(number);
  }
}

template <class T>
__device__ __forceinline__ void pack_block(uint32_t (&out)[4], const LaneBlock& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = pack_pair<T>(x.x[i]);
}

/// A lane's numbers of a row of decays, from its first channel on.
__device__ __forceinline__ void load_decays(float2 (&out)[2], const float* at) {
  out[0] = *reinterpret_cast<const float2*>(at);
  out[1] = *reinterpret_cast<const float2*>(at + 8);
}

__device__ __forceinline__ LaneBlock operator*(const LaneBlock& a, const LaneBlock& b) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.x[i] = a.x[i] * b.x[i];
  return out;
}

/// Tokens of block `block`, 16 channels, number i of this half: k^, the right operand of levels 16
/// and 32, and the products of lower levels.
template <class C>
__device__ __forceinline__ void add_step(const KeyPrepareMemory<C>& s, const HalfTiles<C>& tiles,
                                         const BlockTile& faded_tile, int block, int i,
                                         const LaneRows& rows, DiagonalSums& sum) {
  using Io = typename C::Io;
  constexpr int kPitch = C::kSumPitch;
  const int channel = tiles.channel + 16 * i, column = tiles.column + i;
  const float* const at = &s.sums[16 * block][channel];
  const LaneBlock sums = load_sums<kPitch>(at);
  const LaneBlock k = load_block<Io>(tiles.k.block(block, column), rows.k_norm),
                  q = load_block<Io>(tiles.q.block(block, column), rows.q_norm);
  LaneBlock late;  // decays up to the block's end
  float2 end[2], after[2];
  load_decays(end, at + 15 * kPitch);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    late.x[j] = exp2_pair(make_float2(end[j / 2].x - sums.x[j].x, end[j / 2].y - sums.x[j].y));
  }
  const LaneBlock faded = k * late;
  uint32_t packed[4];
  pack_block<__half>(packed, faded);
  ptx::stmatrix_x4(faded_tile.block(block, column), packed);
  load_decays(after, &s.after[block][channel]);
  pack_rows<C>(packed, faded, after, rows.k_length);
  ptx::stmatrix_x4(tiles.k_late.block(block, column), packed);
  const LevelRows<Io> level_k(k), level_q(q);
  add_low(sum, level_k, level_q, level_decays<8, kPitch>(sums, at));
  add_level(sum.level[0], level_k, level_q, level_decays<4, kPitch>(sums, at));
  add_level(sum.level[1], level_k, level_q, level_decays<2, kPitch>(sums, at));
  add_level(sum.level[2], level_k, level_q, level_decays<1, kPitch>(sums, at));
#pragma unroll
  for (int j = 0; j < 4; ++j) sum.own[j % 2] += k.x[j].x * q.x[j].x + k.x[j].y * q.x[j].y;
}

/// This lane's number of an 8x8 block on the diagonal, row lane_row(), column lane_column() + e, from
/// the level that has it; 0 above the diagonal and, of M, on it. `at`: 0 in M, 2 in P.
__device__ __forceinline__ float on_diagonal(const DiagonalSums& sum, int half, int at, int e) {
  const int row = tile::lane_row(), column = tile::lane_column() + e, unlike = row ^ column;
  if (column > row || (at == 0 && column == row)) return 0.0f;
  const int i = at + e;
  return (unlike & 4) != 0   ? sum.level[0][half][i]
         : (unlike & 2) != 0 ? sum.level[1][half][i]
         : (unlike & 1) != 0 ? sum.level[2][half][i]
                             : sum.own[half];
}

/// A lane's numbers of the diagonal block of M or P: 2 of the upper 8x8 block, 2 of the lower one, 2
/// of the one left of that.
struct DiagonalNumbers {
  float x[6];
};
__device__ __forceinline__ DiagonalNumbers diagonal_numbers(const DiagonalSums& sum, int at) {
  return {{on_diagonal(sum, 0, at, 0), on_diagonal(sum, 0, at, 1), on_diagonal(sum, 1, at, 0),
           on_diagonal(sum, 1, at, 1), sum.low[at], sum.low[at + 1]}};
}

/// M and P of a block of 16 tokens: the diagonal block and those left of it. Number 4 t + 2 i + e of
/// these is of row lane_row() + 8 i, column 8 t + lane_column() + e.
struct PairSums {
  DiagonalNumbers diagonal;
  float left[3][8] = {};
};

/// Level 16 or 32: block (block, kColumn) of M and P, 16 channels of which the lane's first is
/// `channel`; `address`: of the right operand, k of block kColumn. Keys of blocks further back decay
/// on over those between.
template <class C, int kColumn>
__device__ __forceinline__ void add_block(const KeyPrepareMemory<C>& s, uint32_t address, int block,
                                          int channel, const uint32_t (&k)[4],
                                          const uint32_t (&q)[4], PairSums& keys,
                                          PairSums& queries) {
  if (kColumn >= block) return;
  uint32_t b[4];
  ptx::ldmatrix_x4(b, address);
  if (kColumn < 2 && block > kColumn + 1) {
    const __half* const at = &s.between[block == kColumn + 2 ? kColumn : 2][channel];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      b[i] = ptx::multiply_f16(b[i], *reinterpret_cast<const uint32_t*>(at + 8 * (i / 2)));
    }
  }
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const uint32_t right[2] = {b[t], b[2 + t]};
    ptx::mma_f16(keys.left[kColumn] + 4 * t, k, right);
    ptx::mma_f16(queries.left[kColumn] + 4 * t, q, right);
  }
}

/// q~ and k~ in place of q and k, and the products of levels 16 and 32.
template <class C>
__device__ __forceinline__ void finish_step(const KeyPrepareMemory<C>& s, const HalfTiles<C>& tiles,
                                            const BlockTile& faded, int block, int i, float scale,
                                            const LaneRows& rows, PairSums& keys,
                                            PairSums& queries) {
  using Io = typename C::Io;
  const int channel = tiles.channel + 16 * i, column = tiles.column + i;
  LaneBlock early = load_sums<C::kSumPitch>(&s.sums[16 * block][channel]);
#pragma unroll
  for (float2& x : early.x) x = exp2_pair(x);
  const uint32_t k_at = tiles.k.block(block, column), q_at = tiles.q.block(block, column);
  const LaneBlock k = load_block<Io>(k_at, rows.k_norm) * early,
                  q = load_block<Io>(q_at, rows.q_norm) * early;
  float2 before[2];
  load_decays(before, &s.before[block][channel]);
  uint32_t packed[4], early_k[4], early_q[4];
  pack_rows<C>(packed, k, before, rows.k_length);
  ptx::stmatrix_x4(k_at, packed);
#pragma unroll
  for (float2& x : before) x = make_float2(x.x * scale, x.y * scale);
  pack_rows<C>(packed, q, before, rows.q_length);
  ptx::stmatrix_x4(q_at, packed);
  pack_block<__half>(early_k, k);
  pack_block<__half>(early_q, q);
  add_block<C, 0>(s, faded.block(0, column), block, channel, early_k, early_q, keys, queries);
  add_block<C, 1>(s, faded.block(1, column), block, channel, early_k, early_q, keys, queries);
  add_block<C, 2>(s, faded.block(2, column), block, channel, early_k, early_q, keys, queries);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_
