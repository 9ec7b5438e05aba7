// One token on a warp's tile of S, in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/tile.cuh"
#include "cuda/ptx/lanes.cuh"

namespace sluice::cuda::decode {

/// Sums over rows of S: those of its columns with k and q, and those of k and q themselves.
struct Sums {
  float x[11];
  __device__ __forceinline__ float& with_k(int i) { return x[i]; }
  __device__ __forceinline__ float& with_q(int i) { return x[4 + i]; }
  __device__ __forceinline__ float& kk() { return x[8]; }
  __device__ __forceinline__ float& qq() { return x[9]; }
  __device__ __forceinline__ float& kq() { return x[10]; }
};

/// Four of the lane's rows of a staged q or k, those of step j.
template <class C>
__device__ __forceinline__ void read_four(const float* staged, const Lane<C>& lane, int j,
                                          float (&x)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(staged + 32 * j + 4 * lane.key);
  x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}

/// One sweep over the old state gives all that the token asks of it; the order of every sum is that
/// of a column's own rows, whatever the split of columns over warps and CTAs.
template <class C>
__device__ __forceinline__ void sweep(const Stage& s, int t, const Lane<C>& lane, Tile<C>& tile,
                                      Sums& sums) {
  sums = {};
#pragma unroll
  for (int j = 0; j < C::kSteps; ++j) {
    float k[4], q[4];
    read_four(s.k(t), lane, j, k);
    read_four(s.q(t), lane, j, q);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums.kk() = fmaf(k[e], k[e], sums.kk());
      sums.qq() = fmaf(q[e], q[e], sums.qq());
      sums.kq() = fmaf(k[e], q[e], sums.kq());
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums.with_k(i) = fmaf(tile.get(j, e, i), k[e], sums.with_k(i));
        sums.with_q(i) = fmaf(tile.get(j, e, i), q[e], sums.with_q(i));
      }
    }
  }
  ptx::sum_over_lanes<C::kKeyBit, 3>(sums.x);
}

/// S <- alpha S + k delta^T.
template <class C>
__device__ __forceinline__ void update(const Stage& s, int t, const Lane<C>& lane, float alpha,
                                       const float (&delta)[4], Tile<C>& tile) {
#pragma unroll
  for (int j = 0; j < C::kSteps; ++j) {
    float k[4];
    read_four(s.k(t), lane, j, k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile.set(j, e, i, fmaf(k[e], delta[i], alpha * tile.get(j, e, i)));
      }
    }
  }
}

/// Token t of the stage, on old state S: u = S^T k, w = S^T q, delta = beta (v - alpha u) (simple
/// GLA: v), o = scale (alpha w + (k.q) delta), S <- alpha S + k delta^T. l2 norms of k and q are
/// factors of the sums. o: of the lane's four columns, in all lanes along K.
template <class C>
__device__ __forceinline__ void advance(const DecodeParams& p, const Stage& s, int t,
                                        const Place& at, int local, const Lane<C>& lane,
                                        Tile<C>& tile, float (&o)[4]) {
  const float alpha = s.alpha[t * p.r + at.member], beta = s.beta[t * p.r + at.member];
  float v[4], delta[4];
  const float4 four = *reinterpret_cast<const float4*>(s.v(t) + local + 4 * lane.column);
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  Sums sums;
  sweep(s, t, lane, tile, sums);
  float k_factor = 1.0f, q_factor = p.scale;
  if (p.l2norm) {
    k_factor = rsqrtf(sums.kk() + p.l2norm_eps);
    q_factor *= rsqrtf(sums.qq() + p.l2norm_eps);
  }
  const float k_q = k_factor * sums.kq();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (p.delta_rule) v[i] = beta * (v[i] - alpha * (k_factor * sums.with_k(i)));
    o[i] = q_factor * fmaf(k_q, v[i], alpha * sums.with_q(i));
    delta[i] = k_factor * v[i];
  }
  update(s, t, lane, alpha, delta, tile);
}

/// Puts o to its place: of a layer in shared memory for the norm, with the sum of its squares; else
/// in global memory. Lanes along K share out the four columns.
template <class C>
__device__ __forceinline__ void emit(const DecodeParams& p, const Stage& s, const Unit& unit, int t,
                                     const Place& at, int index, const Lane<C>& lane,
                                     float (&o)[4]) {
  const int column = at.column + 4 * lane.column, tile = index - unit.first;
  if (!C::kLayer) {
    const int64_t row = row_offset(p.o, unit.seq, t, at.head, column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (lane.key == i && column < p.V) device::store_number(p.o.data, row + i, p.o.number, o[i]);
    }
    return;
  }
  float square[1] = {0.0f};
  // SYNC warp: v of this token has been read by all lanes, which now replace it by o
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (lane.key == i) s.v(t)[tile * kTileColumns + 4 * lane.column + i] = o[i];
    const float x = p.norm.round_input ? device::rounded(p.norm.out.number, o[i]) : o[i];
    square[0] = fmaf(x, x, square[0]);
  }
  ptx::sum_over_lanes<C::kColumnBit, 2>(square);
  if (threadIdx.x % 32 == 0) s.partial[t * s.tiles + tile] = square[0];
}

/// All tokens of the sequence on one tile.
template <class C>
__device__ __forceinline__ void run_tile(const DecodeParams& p, const Stage& s, const Unit& unit,
                                         int index, const Lane<C>& lane, Tile<C>& tile) {
  const Place at = place_of(p, unit, index);
#pragma unroll 1
  for (int t = 0; t < unit.seq.tokens; ++t) {
    float o[4];
    advance(p, s, t, at, (index - unit.first) * kTileColumns, lane, tile, o);
    emit(p, s, unit, t, at, index, lane, o);
    if (p.write_per_token && s.write[t] >= 0) store_tile(p, unit, index, lane, s.write[t], tile);
  }
  if (p.write_last && unit.seq.write >= 0) {
    store_tile(p, unit, index, lane, unit.seq.write, tile);
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_STEP_CUH_
