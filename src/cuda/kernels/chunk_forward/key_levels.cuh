// Second part of the preparation with key-wise gates: scaled tiles, and the products of keys and
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

/// Rows of this warp, from its first token on, as their numbers are wanted below.
struct LaneRows {
  bool kept[2];  ///< whether they are of the chunk
  float k_norm[2], q_norm[2];
  float q_scale[2];  ///< of q~: the norm where the operator normalises, and `scale`
  float k_scale[2];  ///< of k~ and k^, likewise
};

/// Products of a block of 16 tokens: of levels 4, 2, 1 in both 8x8 blocks on the diagonal, and of
/// level 8. Numbers 0, 1 are keys' (M), 2, 3 queries' (P).
struct DiagonalSums {
  float level[3][2][4] = {};
  float low[4] = {};
  float own[2] = {};  ///< queries and keys of the lane's two tokens, the lane's channels
};

/// A block of 16 tokens x 16 channels of a tile in shared memory.
template <class Tile>
__device__ __forceinline__ BlockTile columns_of(const Tile& tile, int step) {
  return BlockTile(tile.block(step / 4));
}

/// Numbers of type Io of a block, rows that are not `kept` zero.
template <class Io, class Tile>
__device__ __forceinline__ LaneBlock load_block(const Tile& tile, int block, int step,
                                                const LaneRows& rows) {
  uint32_t raw[4];
  ptx::ldmatrix_x4(raw, columns_of(tile, step).block(block, step % 4));
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = rows.kept[i % 2] ? raw[i] : 0u;
    out.x[i] = make_float2(tile::Packed<Io>::first(word), tile::Packed<Io>::second(word));
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

/// The decays of level kLevel.
template <int kLevel, int kPitch>
__device__ __forceinline__ LaneBlock level_decays(const LaneBlock& sums, const float* at) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tile::lane_row() + 8 * (i % 2);
    const int end = (row & ~(2 * kLevel - 1)) + kLevel - 1;
    const float2 pivot = *reinterpret_cast<const float2*>(at + end * kPitch + 8 * (i / 2));
    const float sign = (row & kLevel) != 0 ? 1.0f : -1.0f;
    out.x[i] =
        exp2_pair(make_float2(sign * (sums.x[i].x - pivot.x), sign * (sums.x[i].y - pivot.y)));
  }
  return out;
}

/// Level 8: the 8 odd rows, of k and of q, beside the 8 even ones.
__device__ __forceinline__ void add_low(DiagonalSums& sum, const LaneBlock& k, const LaneBlock& q,
                                        const LaneBlock& decay) {
  const uint32_t left[4] = {
      pack_pair<__half>(k.x[1] * decay.x[1]), pack_pair<__half>(q.x[1] * decay.x[1]),
      pack_pair<__half>(k.x[3] * decay.x[3]), pack_pair<__half>(q.x[3] * decay.x[3])};
  const uint32_t right[2] = {pack_pair<__half>(k.x[0] * decay.x[0]),
                             pack_pair<__half>(k.x[2] * decay.x[2])};
  ptx::mma_f16(sum.low, left, right);
}

/// A level inside both 8x8 blocks: rows of k and of q beside those of k, scaled alike.
__device__ __forceinline__ void add_level(float (&sum)[2][4], const uint32_t (&k)[4],
                                          const uint32_t (&q)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t left[4] = {k[half], q[half], k[2 + half], q[2 + half]};
    const uint32_t right[2] = {k[half], k[2 + half]};
    ptx::mma_f16(sum[half], left, right);
  }
}

template <class T>
__device__ __forceinline__ void pack_scaled(uint32_t (&out)[4], const LaneBlock& x,
                                            const LaneBlock& factor) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = pack_pair<T>(x.x[i] * factor.x[i]);
}

template <int kLevel, int kPitch>
__device__ __forceinline__ void add_level(float (&sum)[2][4], const LaneBlock& k,
                                          const LaneBlock& q, const LaneBlock& sums,
                                          const float* at) {
  const LaneBlock decay = level_decays<kLevel, kPitch>(sums, at);
  uint32_t scaled_k[4], scaled_q[4];
  pack_scaled<__half>(scaled_k, k, decay);
  pack_scaled<__half>(scaled_q, q, decay);
  add_level(sum, scaled_k, scaled_q);
}

/// One factor a row, and one a channel.
__device__ __forceinline__ LaneBlock scaled(const LaneBlock& x, const float (&row)[2],
                                            const float2 (&channel)[2]) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[i] = make_float2(x.x[i].x * (row[i % 2] * channel[i / 2].x),
                           x.x[i].y * (row[i % 2] * channel[i / 2].y));
  }
  return out;
}
__device__ __forceinline__ LaneBlock scaled(const LaneBlock& x, const float (&row)[2]) {
  LaneBlock out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[i] = make_float2(x.x[i].x * row[i % 2], x.x[i].y * row[i % 2]);
  }
  return out;
}

/// Decays of channels over blocks first .. end - 1.
template <int kK>
__device__ __forceinline__ void decays_of(const float (&totals)[4][kK], int first, int end,
                                          int channel, float2 (&decays)[2]) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const float2 more = *reinterpret_cast<const float2*>(&totals[b][channel + 8 * part]);
      if (b >= first && b < end) sum.x += more.x, sum.y += more.y;
    }
    decays[part] = exp2_pair(sum);
  }
}

/// Tokens of block `block`, channels of `step` of 16: k^, the right operand of levels 16 and 32, and
/// the products of lower levels.
template <class C>
__device__ __forceinline__ void add_step(KeyPrepareMemory<C>& s, int block, int step,
                                         const LaneRows& rows, DiagonalSums& sum) {
  using Io = typename C::Io;
  constexpr int kPitch = C::kSumPitch;
  const int channel = 16 * step + tile::lane_column();
  const float* const at = &s.sums[16 * block][channel];
  const LaneBlock sums = load_sums<kPitch>(at);
  LaneBlock k = load_block<Io>(s.k, block, step, rows), q = load_block<Io>(s.q, block, step, rows);
  LaneBlock late;  // decays up to the block's end
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 end = *reinterpret_cast<const float2*>(&s.totals[block][channel + 8 * (i / 2)]);
    late.x[i] = exp2_pair(make_float2(end.x - sums.x[i].x, end.y - sums.x[i].y));
  }
  float2 after[2];
  decays_of<C::kK>(s.totals, block + 1, 4, channel, after);
  uint32_t packed[4];
  pack_scaled<Io>(packed, scaled(k, rows.k_scale, after), late);
  ptx::stmatrix_x4(columns_of(s.k_late, step).block(block, step % 4), packed);
  k = scaled(k, rows.k_norm);
  q = scaled(q, rows.q_norm);
  pack_scaled<__half>(packed, k, late);
  ptx::stmatrix_x4(columns_of(s.faded, step).block(block, step % 4), packed);
  add_low(sum, k, q, level_decays<8, kPitch>(sums, at));
  add_level<4, kPitch>(sum.level[0], k, q, sums, at);
  add_level<2, kPitch>(sum.level[1], k, q, sums, at);
  add_level<1, kPitch>(sum.level[2], k, q, sums, at);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum.own[i % 2] += k.x[i].x * q.x[i].x + k.x[i].y * q.x[i].y;
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

/// Right operand of level 16 or 32: block `column` of k, decayed up to the start of block `block`.
template <class C, int kColumn>
__device__ __forceinline__ void load_faded(uint32_t (&b)[4], const KeyPrepareMemory<C>& s,
                                           int block, int step) {
  ptx::ldmatrix_x4(b, columns_of(s.faded, step).block(kColumn, step % 4));
  if (block <= kColumn + 1) return;
  float2 between[2];
  decays_of<C::kK>(s.totals, kColumn + 1, block, 16 * step + tile::lane_column(), between);
  using Half = tile::Packed<__half>;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    b[i] = pack_pair<__half>(make_float2(Half::first(b[i]), Half::second(b[i])) * between[i / 2]);
  }
}

/// Level 16 or 32: block (block, kColumn) of M and P, 16 channels.
template <class C, int kColumn>
__device__ __forceinline__ void add_block(const KeyPrepareMemory<C>& s, int block, int step,
                                          const uint32_t (&k)[4], const uint32_t (&q)[4],
                                          PairSums& keys, PairSums& queries) {
  if (kColumn >= block) return;
  uint32_t b[4];
  load_faded<C, kColumn>(b, s, block, step);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const uint32_t right[2] = {b[t], b[2 + t]};
    ptx::mma_f16(keys.left[kColumn] + 4 * t, k, right);
    ptx::mma_f16(queries.left[kColumn] + 4 * t, q, right);
  }
}

/// q~ and k~ in place of q and k, and the products of levels 16 and 32.
template <class C>
__device__ __forceinline__ void finish_step(KeyPrepareMemory<C>& s, int block, int step,
                                            const LaneRows& rows, PairSums& keys,
                                            PairSums& queries) {
  using Io = typename C::Io;
  const int channel = 16 * step + tile::lane_column();
  LaneBlock early = load_sums<C::kSumPitch>(&s.sums[16 * block][channel]);
#pragma unroll
  for (float2& x : early.x) x = exp2_pair(x);
  const LaneBlock k = load_block<Io>(s.k, block, step, rows),
                  q = load_block<Io>(s.q, block, step, rows);
  float2 before[2];
  decays_of<C::kK>(s.totals, 0, block, channel, before);
  uint32_t packed[4], early_k[4], early_q[4];
  pack_scaled<Io>(packed, scaled(q, rows.q_scale, before), early);
  ptx::stmatrix_x4(columns_of(s.q, step).block(block, step % 4), packed);
  pack_scaled<Io>(packed, scaled(k, rows.k_scale, before), early);
  ptx::stmatrix_x4(columns_of(s.k, step).block(block, step % 4), packed);
  pack_scaled<__half>(early_k, scaled(k, rows.k_norm), early);
  pack_scaled<__half>(early_q, scaled(q, rows.q_norm), early);
  add_block<C, 0>(s, block, step, early_k, early_q, keys, queries);
  add_block<C, 1>(s, block, step, early_k, early_q, keys, queries);
  add_block<C, 2>(s, block, step, early_k, early_q, keys, queries);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_
