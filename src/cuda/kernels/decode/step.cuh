// Advances a CTA's tile of S, in registers, by one token.
//
// Order of sums over rows of S, whatever the layout, the width of the tile and the CTA: blocks of
//       four rows one after the other, fused, and a binary tree over the blocks. Every part of a
//       tile
// that a thread, some lanes or a warp have is a whole branch of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/tile.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/lanes.cuh"

namespace sluice::cuda::decode {

__device__ __forceinline__ void read_four(const float* buffered, float (&x)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(buffered);
  x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

__device__ __forceinline__ void write_four(float* buffered, const float (&x)[4]) {
  *reinterpret_cast<float4*>(buffered) = make_float4(x[0], x[1], x[2], x[3]);
}

__device__ __forceinline__ void add_four(float (&sum)[4], const float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += x[i];
}

/// What a token's q and k, gates and numbers of all columns have in common.
struct TokenFactors {
  float alpha, beta;
  float k, q, k_q;  ///< of k, of q and scale, k times k.q
  bool delta_rule;

  /// u = S^T k and w = S^T q of a column, without factors; v becomes what k is multiplied by.
  __device__ __forceinline__ void correct(float u, float* v) const {
    if (delta_rule) *v = beta * (*v - alpha * (k * u));
  }
  __device__ __forceinline__ float output(float w, float v) const {
    return q * fmaf(k_q, v, alpha * w);
  }
};

/// Products of a token's rows with each other.
struct RowProducts {
  float k_k, q_q, k_q;
};

/// @param p DecodeParams, or others of a step
template <class Params>
__device__ __forceinline__ TokenFactors factors_from(const Params& p, float alpha, float beta,
                                                     const RowProducts& rows) {
  TokenFactors f{alpha, beta, 1.0f, p.scale, 0.0f, p.delta_rule};
  if (p.l2norm) {
    f.k = rsqrtf(rows.k_k + p.l2norm_eps);
    f.q *= rsqrtf(rows.q_q + p.l2norm_eps);
  }
  f.k_q = f.k * rows.k_q;
  return f;
}

/// The factors, by every warp for itself. l2 norms of k and q are among them.
template <class C, class Params>
__device__ __forceinline__ TokenFactors factors_of(const Params& p, const TokenBuffer& s, int t,
                                                   int member, const Lane<C>& lane) {
  float sums[3 * C::kPieces] = {};
#pragma unroll
  for (int piece = 0; piece < C::kPieces; ++piece) {
    float k[4], q[4];
    const int row = 4 * (lane.index % C::kLanes) + 128 * piece;
    read_four(s.k(t) + row, k);
    read_four(s.q(t) + row, q);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[3 * piece] = fmaf(k[e], k[e], sums[3 * piece]);
      sums[3 * piece + 1] = fmaf(q[e], q[e], sums[3 * piece + 1]);
      sums[3 * piece + 2] = fmaf(k[e], q[e], sums[3 * piece + 2]);
    }
  }
  ptx::sum_over_lanes<0, C::kLanes == 16 ? 4 : 5>(sums);
  if constexpr (C::kPieces == 2) {
#pragma unroll
    for (int i = 0; i < 3; ++i) sums[i] += sums[3 + i];
  }
  return factors_from(p, s.alpha[t * p.r + member], s.beta[t * p.r + member],
                      {sums[0], sums[1], sums[2]});
}

/// Four columns of o, from `column` of the tile on, to their place: of a layer in shared memory for
/// the norm, with the sum of their squares; else in global memory.
template <class C, class Params>
__device__ __forceinline__ void emit_four(const Params& p, const TokenBuffer& s, const Unit& unit,
                                          int t, const Place& at, int local, int column,
                                          const float (&o)[4]) {
  const int left = p.V - at.column - column;
  if (!C::kLayer) {
    const int64_t row = row_offset(p.o, unit.seq, t, at.head, at.column + column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) device::store_number(p.o.data, row + i, p.o.number, o[i]);
    }
    return;
  }
  write_four(&s.o[t * s.columns + local + column], o);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = p.norm.round_input ? device::rounded(p.norm.out.number, o[i]) : o[i];
    sum = i < left ? fmaf(x, x, sum) : sum;
  }
  s.squares[(t * s.columns + local + column) / 4] = sum;
}

/// The CTA's o is complete, but for what other threads add to it.
/// SYNC cluster 1: every CTA of the unit has read the q and k columns of the conv states
/// SYNC cluster 2: this thread's o and squares are written
__device__ __forceinline__ void hand_over() {
  ptx::cluster_wait();
  ptx::cluster_arrive();
}

/// Whether hand_over() comes with the last token of the last tile. PERF ahead of the state's
/// stores, whose end the barrier would wait for.
template <class Params>
__device__ __forceinline__ bool hands_over(const Params& p, const Unit& unit) {
  return p.ctas() > 1 && unit.seq.tokens > 0 && unit.first < unit.last;
}

/// A token on a tile.
template <class C, class Params>
struct Token {
  const Params& p;
  const TokenBuffer& s;
  const Unit& unit;
  const Lane<C>& lane;
  const Place& at;
  int t;      ///< of the token buffer
  int local;  ///< first column of the tile among those of the CTA
  int turn;   ///< counts tokens of all tiles
};

/// x o alpha of four rows, where rows have gates of their own.
template <class C>
__device__ __forceinline__ void decay_four(const float* decays, float (&x)[4]) {
  if constexpr (C::kKeyGates) {
    float alpha[4];
    read_four(decays, alpha);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] *= alpha[e];
  }
}

/// The decays of four rows; `all` unless they have gates of their own.
template <class C>
__device__ __forceinline__ void alphas_of(const float* decays, float all, float (&alpha)[4]) {
  if constexpr (C::kKeyGates) {
    read_four(decays, alpha);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) alpha[e] = all;
  }
}

/// [K,V]: the thread's rows of four columns times x.
/// @param decays of rows, without effect unless they have gates of their own
template <class C, class Form>
__device__ __forceinline__ void sum_rows(const Lane<C>& lane, Tile<C>& tile, const float* x,
                                         const float* decays, float (&sum)[4]) {
  float part[2][4] = {};
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > 0 && 4 * block >= lane.vectors) break;
    float four[4], y[4] = {};
    read_four(x + lane.row + 4 * block, four);
    decay_four<C>(decays + lane.row + 4 * block, four);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float row[4];
      tile.forget_converted(4 * block + e);
      Form::get(tile.words[4 * block + e], row);
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] = fmaf(row[i], four[e], y[i]);
    }
    if (block % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) part[block / 2][i] = y[i];
    } else {
      add_four(part[block / 2], y);
    }
  }
  if (lane.vectors > 8) add_four(part[0], part[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = part[0][i];
}

/// Sums of four columns over kWarps warps. PERF branch by branch, for few registers.
template <int kWarps>
__device__ __forceinline__ void sum_warps(const float* partials, int column_bits, float (&sum)[4]) {
  if constexpr (kWarps == 1) {
    read_four(partials, sum);
  } else {
    float second[4];
    sum_warps<kWarps / 2>(partials, column_bits, sum);
    sum_warps<kWarps / 2>(partials + (kWarps / 2 << column_bits), column_bits, second);
    add_four(sum, second);
  }
}

/// [K,V]: u = S^T k, w = S^T q, delta = beta (v - alpha u) (simple GLA: v),
/// o = scale (alpha w + (k.q) delta), S <- alpha S + k delta^T. Warps share out the columns of o.
template <class C, class Form, class Params>
__device__ __forceinline__ void advance_rows(const Token<C, Params>& token, Tile<C>& tile) {
  const auto& [p, s, unit, lane, at, t, local, turn] = token;
  const TokenFactors f = factors_of(p, s, t, at.member, lane);
  const int bits = p.column_bits(), product = C::kWarps << bits;
  float* const with_k = s.partials + (turn % 2 != 0 ? 2 * product : 0) + lane.column;
  float* const with_q = with_k + product;
  const bool first_lane = lane.index >> (bits - 2) == 0;
#pragma unroll C::kSumBodies
  for (int i = 0; i < 2; ++i) {
    float x[4];
    sum_rows<C, Form>(lane, tile, i == 0 ? s.k(t) : s.q(t), s.decays(t), x);
    ptx::sum_from_bit(bits - 2, x);
    if (first_lane) write_four((i == 0 ? with_k : with_q) + (lane.warp << bits), x);
  }
  // SYNC CTA: the warps' sums of this token are complete. Those of the one before are read, so the
  // next token may use their place.
  __syncthreads();
  float u[4], v[4];
  sum_warps<C::kWarps>(with_k, bits, u);
  read_four(s.v(t) + local + lane.column, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) f.correct(u[i], &v[i]);
  if (first_lane && (lane.column / 4) % C::kWarps == lane.warp) {
    float o[4];
    sum_warps<C::kWarps>(with_q, bits, o);
#pragma unroll
    for (int i = 0; i < 4; ++i) o[i] = f.output(o[i], v[i]);
    if (at.column + lane.column < p.V) emit_four<C>(p, s, unit, t, at, local, lane.column, o);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] *= f.k;
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (4 * block >= lane.vectors) break;
    float k[4], alpha[4];
    read_four(s.k(t) + lane.row + 4 * block, k);
    alphas_of<C>(s.decays(t) + lane.row + 4 * block, f.alpha, alpha);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float x[4];
      tile.forget_converted(4 * block + e);
      Form::get(tile.words[4 * block + e], x);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = fmaf(k[e], v[i], alpha[e] * x[i]);
      Form::set(tile.words[4 * block + e], x);
    }
  }
}

/// [V,K]: sums over all rows of the column of vector m, in the lanes whose number mod 16 is m.
template <class C, class Form>
__device__ __forceinline__ float sum_columns(const Lane<C>& lane, Tile<C>& tile, const float* x,
                                             const float* decays) {
  float four[C::kPieces][4], sums[kVectors];
#pragma unroll
  for (int piece = 0; piece < C::kPieces; ++piece) {
    read_four(x + lane.row + 128 * piece, four[piece]);
    decay_four<C>(decays + lane.row + 128 * piece, four[piece]);
  }
#pragma unroll
  for (int m = 0; m < kVectors; ++m) {
    float numbers[4];
    tile.forget_converted(m);
    Form::get(tile.words[m], numbers);
    sums[m] = 0.0f;
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[m] = fmaf(numbers[e], four[m % C::kPieces][e], sums[m]);
  }
  float sum[1] = {ptx::fold_over_lanes<C::kLanes>(sums)};
  if (C::kPieces == 2) ptx::sum_over_lanes<0, 1>(sum);
  return sum[0];
}

/// [V,K]: the lane that has the sums of a column of the warp.
template <class C>
__device__ __forceinline__ int lane_of(int column) {
  return column / C::kPerLoad * C::kPieces + column % C::kPerLoad * 16;
}

/// advance_rows() of the other layout: warps have columns of their own and nothing to do with each
/// other.
template <class C, class Form, class Params>
__device__ __forceinline__ void advance_columns(const Token<C, Params>& token, Tile<C>& tile) {
  const auto& [p, s, unit, lane, at, t, local, turn] = token;
  const TokenFactors f = factors_of(p, s, t, at.member, lane);
  float u = 0.0f, w = 0.0f;
  // PERF one body for both products: half the code, and no number converted for both
#pragma unroll 1
  for (int product = 0; product < 2; ++product) {
    u = w;
    w = sum_columns<C, Form>(lane, tile, product == 0 ? s.k(t) : s.q(t), s.decays(t));
  }
  const int columns = lane.warp_columns(), before = lane.warp * columns;
  const int own = lane.index % 16 / C::kPieces * C::kPerLoad + lane.index / 16 % C::kPerLoad;
  float v = own < columns ? s.v(t)[local + before + own] : 0.0f;
  f.correct(u, &v);
  float o[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) o[i] = f.output(w, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) o[i] = ptx::from_lane(o[i], lane_of<C>(own / 4 * 4 + i) % 32);
  const bool sends = own % 4 == 0 && own < columns && lane_of<C>(own) == lane.index;
  if (sends && at.column + before + own < p.V) {
    emit_four<C>(p, s, unit, t, at, local, before + own, o);
  }
  v *= f.k;
  float k[C::kPieces][4], alpha[C::kPieces][4];
#pragma unroll
  for (int piece = 0; piece < C::kPieces; ++piece) {
    read_four(s.k(t) + lane.row + 128 * piece, k[piece]);
    alphas_of<C>(s.decays(t) + lane.row + 128 * piece, f.alpha, alpha[piece]);
  }
#pragma unroll
  for (int m = 0; m < kVectors; ++m) {
    if (m >= lane.vectors) break;
    const int column = m / C::kPieces * C::kPerLoad + lane.index / C::kLanes;
    const float delta = ptx::from_lane(v, lane_of<C>(column));
    float x[4];
    tile.forget_converted(m);
    Form::get(tile.words[m], x);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x[e] = fmaf(k[m % C::kPieces][e], delta, alpha[m % C::kPieces][e] * x[e]);
    }
    Form::set(tile.words[m], x);
  }
}

/// Where the state after token t goes, -1: nowhere. A sequence without tokens keeps its state.
template <class Params>
__device__ __forceinline__ int64_t slot_after(const Params& p, const TokenBuffer& s,
                                              const Unit& unit, int t) {
  if (p.write_per_token) return unit.seq.tokens > 0 ? s.write[t] : -1;
  return p.write_last && t + 1 >= unit.seq.tokens ? unit.seq.write : -1;
}

/// All tokens of the sequence on one tile.
template <class C, class Form, class Params>
__device__ __forceinline__ void run_tile(const Params& p, const TokenBuffer& s, const Unit& unit,
                                         int index, const Lane<C>& lane, Tile<C>& tile) {
  const Place at = place_of(p, unit, index);
  const int local = (index - unit.first) << p.column_bits();
#pragma unroll 1
  for (int t = 0;;) {
    const int turn = (index - unit.first) * unit.seq.tokens + t;
    const Token<C, Params> token{p, s, unit, lane, at, t, local, turn};
    if (unit.seq.tokens > 0) {
      if constexpr (C::kVk) {
        advance_columns<C, Form>(token, tile);
      } else {
        advance_rows<C, Form>(token, tile);
      }
    }
    if (C::kLayer && index + 1 == unit.last && t + 1 == unit.seq.tokens && p.ctas() > 1) {
      hand_over();
    }
    const int64_t slot = slot_after(p, s, unit, t);
    if (slot >= 0) store_tile(p, unit, index, lane, slot, tile);
    if (C::kPacked || ++t >= unit.seq.tokens) break;
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_
