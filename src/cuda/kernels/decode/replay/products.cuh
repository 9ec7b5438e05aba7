// Multiplies S0 and replay entries by k and q of four tokens at a time on tensor cores, and folds
// entries into S0.
//
// Order of sums over rows, whatever the width of the tile: blocks of 16 rows on their own, then a
//       binary tree over the blocks, first a warp's, then the warps'.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_PRODUCTS_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_PRODUCTS_CUH_

#include "cuda/kernels/decode/replay/buffer.cuh"
#include "cuda/kernels/decode/replay/tile.cuh"
#include "cuda/tile/tf32x2.cuh"

namespace sluice::cuda::decode {

inline constexpr int kRound = 4;  ///< tokens whose k and q are the eight columns of a product

/// k and q of tokens first .. first + 3 as operand B: column 2 i is k of token first + i, column
/// 2 i + 1 its q. Columns of tokens past the last are those of another one.
template <class C>
struct RoundOperand {
  const float* row;
  bool low;  ///< numbers of 16 bits have no low parts

  __device__ __forceinline__ RoundOperand(const DecodeParams& p, const TokenBuffer& s, int tokens,
                                          int first, const ReplayLane<C>& lane)
      : low(C::kLayer || p.q.number == Number::kFloat32) {
    const int t = min(first + lane.quad / 2, tokens - 1);
    row = (lane.quad % 2 == 0 ? s.k(t) : s.q(t)) + 4 * lane.member;
  }
  /// Rows first_row .. first_row + 15, those of one product after the other.
  __device__ __forceinline__ void block(int first_row, tile::Tf32x2<2> (&b)[2]) const {
    float x[4];
    read_four(row + first_row, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i / 2].set(i % 2, x[i]);
  }
};

/// The warp's sums of S0^T k and S0^T q, without factors.
template <class C, class Form>
__device__ __forceinline__ void multiply_state(const ReplayParams& p, const ReplayBuffer& r,
                                               const Unit& unit, const ReplayLane<C>& lane,
                                               Tile<C>& tile) {
#pragma unroll 1
  for (int first = 0; first < unit.seq.tokens; first += kRound) {
    const RoundOperand<C> operand(p.step, r.s, unit.seq.tokens, first, lane);
    float sums[2][2][4] = {};  // of branches of the tree, of pairs of columns
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block > 0 && block >= lane.blocks) break;
      tile::Tf32x2<2> b[2];
      operand.block(16 * (lane.row_part * lane.blocks + block), b);
      float x[4][4], part[2][4] = {};
      get_square<C, Form>(tile, block, x);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          tile::Tf32x2<4> a;
#pragma unroll
          for (int i = 0; i < 4; ++i) a.set(i, x[2 * step + i / 2][2 * pair + i % 2]);
          tile::multiply_tf32x2(part[pair], a, b[step], !C::kPacked, operand.low);
        }
      }
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        if (block % 2 == 0) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[block / 2][pair][i] = part[pair][i];
        } else {
          add_four(sums[block / 2][pair], part[pair]);
        }
      }
    }
    const int t = first + lane.member;
    if (t >= unit.seq.tokens) continue;
    float* const to = r.partial(lane.row_part, t) + lane.column;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      float four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four[i] = sums[0][i / 2][i % 2 * 2 + which];
        if (lane.blocks > 2) four[i] += sums[1][i / 2][i % 2 * 2 + which];
      }
      write_four(to + which * r.s.columns, four);
    }
  }
}

/// k_i.k and k_i.q of all entries and tokens over the warp's block of rows, without factors.
template <class C>
__device__ __forceinline__ void multiply_entries(const ReplayParams& p, const ReplayBuffer& r,
                                                 const Unit& unit, const ReplayLane<C>& lane) {
  static_assert(C::kK == 16 * C::kWarps);
  const float* const key = r.key(lane.quad) + 16 * lane.warp + 4 * lane.member;
  float x[2][4];
  read_four(key, x[0]);
  read_four(key + 8 * (C::kK + kKeyPad), x[1]);
  tile::Tf32x2<4> a[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) a[i / 4].set(i % 4, x[i % 2][i / 2]);
#pragma unroll 1
  for (int first = 0; first < unit.seq.tokens; first += kRound) {
    const RoundOperand<C> operand(p.step, r.s, unit.seq.tokens, first, lane);
    tile::Tf32x2<2> b[2];
    operand.block(16 * lane.warp, b);
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      tile::multiply_tf32x2(sums, a[step], b[step], true, operand.low);
    }
    const int t = first + lane.member;
    if (t >= unit.seq.tokens) continue;
    float2* const to = r.products + (lane.warp * r.tokens + t) * kMaxReplayEntries + lane.quad;
    to[0] = make_float2(sums[0], sums[1]);
    to[8] = make_float2(sums[2], sums[3]);
  }
}

/// Weighted deltas of all live entries and two columns of the lane's as operand A.
template <class C>
__device__ __forceinline__ void read_deltas(const ReplayBuffer& r, const ReplayCursor& cursor,
                                            const ReplayLane<C>& lane, int pair,
                                            tile::Tf32x2<4> (&a)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int e = lane.member + 4 * i;
    float2 x = {};
    if (e < cursor.live) {
      x = *reinterpret_cast<const float2*>(r.delta(e) + lane.column + 2 * pair);
      const float weight = r.weights[1 + e];
      x.x *= weight, x.y *= weight;
    }
    a[i / 2].set(i % 2 * 2, x.x), a[i / 2].set(i % 2 * 2 + 1, x.y);
  }
}

/// Keys of all live entries as operand B: rows 2 step and 2 step + 1 of the squares of a block.
template <class C>
__device__ __forceinline__ void read_keys(const ReplayBuffer& r, const ReplayCursor& cursor,
                                          const ReplayLane<C>& lane, int row, int step,
                                          tile::Tf32x2<2> (&b)[2]) {
  const int own = row + 4 * (lane.quad / 2) + 2 * step + lane.quad % 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int e = lane.member + 4 * i;
    b[i / 2].set(i % 2, e < cursor.live ? r.key(e)[own] : 0.0f);
  }
}

/// The tile with all live entries in it. NUM: their sum is made on its own, for tensor cores cut
/// off what they add.
template <class C, class Form>
__device__ __forceinline__ void fold_tile(const ReplayBuffer& r, const ReplayCursor& cursor,
                                          const ReplayLane<C>& lane, Tile<C>& tile) {
  const float decay = r.weights[0];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    // PERF operands of one pair of columns at a time: registers
    asm volatile("" ::: "memory");
    tile::Tf32x2<4> a[2];
    read_deltas(r, cursor, lane, pair, a);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block > 0 && block >= lane.blocks) break;
      asm volatile("" ::: "memory");
      float x[4][4];
      get_square<C, Form>(tile, block, x);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        tile::Tf32x2<2> b[2];
        read_keys(r, cursor, lane, 16 * (lane.row_part * lane.blocks + block), step, b);
        float sum[4] = {};
        tile::multiply_tf32x2(sum, a[0], b[0], true, true);
        tile::multiply_tf32x2(sum, a[1], b[1], true, true);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& number = x[2 * step + i % 2][2 * pair + i / 2];
          number = fmaf(decay, number, sum[i]);
        }
      }
      set_square<C, Form>(tile, block, x);
    }
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_PRODUCTS_CUH_
