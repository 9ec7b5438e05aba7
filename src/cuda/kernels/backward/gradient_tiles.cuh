// Computes gradients of a chunk's tokens from the states around it, by tensor cores.
//
// Math      docs/math.md (17) in an order that needs neither q k^T nor k k^T: with
//             dQ = scale diag(exp G) d_o S^T + X k
//             P  = diag(E) N D'^T + X^T q + Z^T k
//             R  = Z' k - diag(exp G) Y S^T,  Z = diag(beta) Z',  so that dK = P + diag(beta) R,
//           dG_i = q_i . dQ_i - k_i . P_i + beta_i k_i . R_i, and dbeta_i = Y_i . v_i + k_i . R_i
// Roles     a persistent CTA of 256 threads has one (chunk, head) after the other; warp w has 16
//           rows, from 16 (w % 4) on, and half of the columns
// Pipeline  operands of the next item are requested as soon as their place is free:
//           X (d_o, N) -> Y, dv (L, dN) -> Z, dQ (S, q, k) -> R, <S, D'> -> P (D')
//           d_o, N, dN: a whole item ahead; L, S: behind R; q, k, D': behind P
// Memory    tiles of 8 KB: rows 2 x 6 and 4, S 4, D' 4, squares 3: 220 KB
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_

#include "cuda/kernels/backward/gradient_items.cuh"

namespace sluice::cuda::backward {

/// left right^T over all of V: the warp's rows and its 32 of 64 tokens.
template <class Io>
__device__ __forceinline__ void multiply_tokens(WarpAccumulator<4>& sum, const GradientPart& part,
                                                const RowTiles& left, const RowTiles& right) {
  sum.clear();
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, true, 4>(sum, left.at(w), part.row, right.at(w), 32 * part.half);
  }
}

/// X = scale tril(Gamma * d_o N^T).
template <class Io>
__device__ __forceinline__ void token_tile(const BackwardParams& b, const GradientPart& part) {
  const float* const G = part.G;
  WarpAccumulator<4> x;
  multiply_tokens<Io>(x, part, part.rows.d_o, part.rows.N);
  x.for_each_pair([&](int r, int c, float& first, float& second) {
    const int i = part.row + r, j = 32 * part.half + c;
    // WHY a choice: above the diagonal the exponential may be infinite.
    first = i >= j ? b.stage.scale * decay(G[i] - G[j]) * first : 0.0f;
    second = i > j ? b.stage.scale * decay(G[i] - G[j + 1]) * second : 0.0f;
  });
  tile::put_part<Io>(ptx::shared_address(part.s.X), part.row, 32 * part.half, x);
}

/// v of a lane's part of Y, on its way.
struct LaneValues {
  uint32_t pairs[8][2];
};
__device__ __forceinline__ LaneValues request_values(const BackwardParams& b,
                                                     const GradientPart& part) {
  LaneValues v{};
  if (!b.delta_rule) return v;
  const TokenRows& rows = b.stage.values;
  const auto* const from = static_cast<const uint16_t*>(rows.data) +
                           at(rows, part.chunk.batch, part.chunk.row, part.head) + 64 * part.half +
                           tile::lane_column();
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    const int i = part.low() + 8 * high;
    if (i >= part.chunk.tokens) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v.pairs[j][high] =
          __ldg(reinterpret_cast<const uint32_t*>(from + i * rows.token_stride + 8 * j));
    }
  }
  return v;
}

/// Y = L^T dN in the place of dN, and dv; with simple GLA dv = dN.
template <class Io>
__device__ __forceinline__ void value_tile(const BackwardParams& b, const GradientPart& part,
                                           const LaneValues& v) {
  using Pack = tile::Packed<Io>;
  WarpAccumulator<8> y;
  y.clear();
  const RowTiles& dN = part.rows.Y;
  if (b.delta_rule) {
    product<Io, true, false, 8>(y, ptx::shared_address(part.s.L), part.row, dN.at(part.half), 0);
    LaneSums sums;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const uint32_t pair = v.pairs[j][high];
        sums.add(8 * high, y.x[j][2 * high], y.x[j][2 * high + 1],
                 {Pack::first(pair), Pack::second(pair)});
      }
    }
    sums.put(part.s.value[part.half], part.row);
  } else {
    y.for_each_pair([&](int r, int c, float& first, float& second) {
      const float2 given = pair_at<Io>(dN.tile[part.half], part.row + r, c);
      first = given.x, second = given.y;
    });
  }
  if (b.dv.data != nullptr) {
    const OutputRows dv(b.dv, part.chunk, part.head);
    y.for_each_pair([&](int r, int c, float first, float second) {
      const float factor = b.delta_rule ? part.beta[part.row + r] : 1.0f;
      dv.store(part.row + r, 64 * part.half + c, factor * first, factor * second);
    });
  }
  if (!b.delta_rule) return;
  __syncthreads();  // SYNC: nobody reads dN or L
  tile::put_part<Io>(dN.at(part.half), part.row, 0, y);
}

/// Z and Z': -stril(Gamma * Y N^T) with and without beta.
template <class Io>
__device__ __forceinline__ void correction_tiles(const GradientPart& part) {
  const float* const G = part.G;
  WarpAccumulator<4> z;
  multiply_tokens<Io>(z, part, part.rows.Y, part.rows.N);
  z.for_each_pair([&](int r, int c, float& first, float& second) {
    const int i = part.row + r, j = 32 * part.half + c;
    first = i > j ? -decay(G[i] - G[j]) * first : 0.0f;
    second = i > j + 1 ? -decay(G[i] - G[j + 1]) * second : 0.0f;
  });
  tile::put_part<Io>(ptx::shared_address(part.s.L), part.row, 32 * part.half, z);
  z.scale_rows(part.beta[part.low()], part.beta[part.low() + 8]);
  tile::put_part<Io>(ptx::shared_address(part.s.Z), part.row, 32 * part.half, z);
}

/// rows state^T over all of V: the warp's rows and its 64 columns of K.
template <class Io>
__device__ __forceinline__ void multiply_state(WarpAccumulator<8>& sum, const GradientPart& part,
                                               const RowTiles& rows,
                                               const RowTiles (&state)[kWidths]) {
  sum.clear();
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, true, 8>(sum, rows.at(w), part.row, state[part.half].at(w), 0);
  }
}

__device__ __forceinline__ void store_part(const TokenRows& to, const GradientPart& part,
                                           WarpAccumulator<8>& x) {
  const OutputRows rows(to, part.chunk, part.head);
  x.for_each_pair([&](int r, int c, float first, float second) {
    rows.store(part.row + r, 64 * part.half + c, first, second);
  });
}

/// dQ of this head, and its products with q.
template <class Io>
__device__ __forceinline__ void query_part(const BackwardParams& b, const GradientPart& part) {
  GradientTiles& s = part.s;
  const float* const G = part.G + part.low();
  WarpAccumulator<8> dq;
  multiply_state<Io>(dq, part, part.rows.d_o, s.S);
  dq.scale_rows(b.stage.scale * decay(G[0]), b.stage.scale * decay(G[8]));
  product<Io, false, false, 8>(dq, ptx::shared_address(s.X), part.row, s.k.at(part.half), 0);
  put_row_products<Io>(dq, s.q.tile[part.half], part.row, s.query[part.half]);
  if (b.dq.data != nullptr) store_part(b.dq_parts, part, dq);
}

/// R, and its products with k.
template <class Io>
__device__ __forceinline__ void correction_part(WarpAccumulator<8>& R, const GradientPart& part) {
  GradientTiles& s = part.s;
  const float* const G = part.G + part.low();
  multiply_state<Io>(R, part, part.rows.Y, s.S);
  R.scale_rows(-decay(G[0]), -decay(G[8]));
  product<Io, false, false, 8>(R, ptx::shared_address(s.L), part.row, s.k.at(part.half), 0);
  put_row_products<Io>(R, s.k.tile[part.half], part.row, s.correction[part.half]);
}

/// P, its products with k, and those of its term with D'.
template <class Io>
__device__ __forceinline__ void key_part(const BackwardParams& b, WarpAccumulator<8>& P,
                                         const GradientPart& part) {
  GradientTiles& s = part.s;
  const float *const G = part.G + part.low(), last = part.G[kTokens - 1];
  const uint8_t* const k = s.k.tile[part.half];
  multiply_state<Io>(P, part, part.rows.N, s.D);
  P.scale_rows(decay(last - G[0]), decay(last - G[8]));
  put_row_products<Io>(P, k, part.row, s.leave[part.half]);
  product<Io, true, false, 8>(P, ptx::shared_address(s.X), part.row, s.q.at(part.half), 0);
  if (b.delta_rule) {
    product<Io, true, false, 8>(P, ptx::shared_address(s.Z), part.row, s.k.at(part.half), 0);
  }
  put_row_products<Io>(P, k, part.row, s.key[part.half]);
}

/// <S, D'> by warps, to s.warps.
template <class Io>
__device__ __forceinline__ void put_state_product(GradientTiles& s) {
  using Pack = tile::Packed<Io>;
  const auto *const S = reinterpret_cast<const uint4*>(s.S), *const D =
                                                                 reinterpret_cast<const uint4*>(
                                                                     s.D);
  constexpr int kPieces = static_cast<int>(kWidths * kWidths * kTileBytes / 16);
  float sum = 0.0f;
#pragma unroll 2
  for (auto i = static_cast<int>(threadIdx.x); i < kPieces; i += kThreads) {
    const uint4 x = S[i], y = D[i];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w}, c[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      sum = fmaf(Pack::first(a[word]), Pack::first(c[word]), sum);
      sum = fmaf(Pack::second(a[word]), Pack::second(c[word]), sum);
    }
  }
  sum = warp_sum(sum);
  if (tile::lane() == 0) s.warps[tile::warp()] = sum;
}

/// Gradients of gates and write strengths, by the first warp, which knows what is given of them.
__device__ __forceinline__ void store_token_gates(const BackwardParams& b, const GradientPart& part,
                                                  const GivenGate (&given)[2]) {
  const GradientTiles& s = part.s;
  const int lane = tile::lane();
  const auto both = [](const HalfSums& sums, int i) { return sums[0][i] + sums[1][i]; };
  const auto strength = [&](int i) { return b.delta_rule ? both(s.correction, i) : 0.0f; };
  const auto gate = [&](int i) {
    return both(s.query, i) - both(s.key, i) + part.beta[i] * strength(i);
  };
  float product = 0.0f;
#pragma unroll
  for (const float x : s.warps) product += x;
  const float leave = warp_sum(both(s.leave, lane) + both(s.leave, lane + 32));
  const float whole = leave + decay(part.G[kTokens - 1]) * product;
  // A lane has two tokens; those after them are of the lanes before.
  const int last = kTokens - 1 - 2 * lane;
  float dg = whole + device::sum_before_lane(gate(last) + gate(last - 1));
#pragma unroll
  for (int back = 0; back < 2; ++back) {
    const int i = last - back;
    dg += gate(i);
    if (i >= part.chunk.tokens) continue;
    const float value = b.delta_rule ? both(s.value, i) : 0.0f;
    store_gate(b, part.chunk, part.head, i, given[back], dg, value + strength(i));
  }
}

/// All but the requests of one item.
template <class Io>
__device__ __forceinline__ void run_item(const BackwardParams& b, const GradientPart& part,
                                         const GradientItem& next) {
  const LaneValues v = request_values(b, part);
  GivenGate given[2];
  if (threadIdx.x < 32) {
#pragma unroll
    for (int back = 0; back < 2; ++back) {
      const int token = kTokens - 1 - 2 * tile::lane() - back;
      given[back] = given_gate(b, part.chunk, part.head, token);
    }
  }
  ptx::wait_for_copies<3>();
  __syncthreads();  // SYNC: d_o, N, dN, G and beta are there
  token_tile<Io>(b, part);
  ptx::wait_for_copies<2>();
  __syncthreads();  // SYNC: L and S are there
  value_tile<Io>(b, part, v);
  ptx::wait_for_copies<1>();
  __syncthreads();  // SYNC: X, Y, q, k and D' are there
  if (b.delta_rule) correction_tiles<Io>(part);
  query_part<Io>(b, part);
  put_state_product<Io>(part.s);
  __syncthreads();  // SYNC: Z is there
  WarpAccumulator<8> dk;
  dk.clear();
  if (b.delta_rule) {
    correction_part<Io>(dk, part);
    dk.scale_rows(part.beta[part.low()], part.beta[part.low() + 8]);
    __syncthreads();  // SYNC: nobody reads S or L
  }
  request_entering(b, next, part.s);
  WarpAccumulator<8> P;
  key_part<Io>(b, P, part);
#pragma unroll
  for (int i = 0; i < 32; ++i) dk.x[i / 4][i % 4] += P.x[i / 4][i % 4];
  if (b.dk.data != nullptr) store_part(b.dk_parts, part, dk);
  __syncthreads();  // SYNC: sums are there, nobody reads tiles
  request_leaving(b, next, part.s);
  if (threadIdx.x < 32) store_token_gates(b, part, given);
}

/// Items are slots x heads.
template <class Io>
__global__ void __launch_bounds__(kThreads, 1)
    gradient_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<GradientTiles*>(dynamic_shared);
  device::follow();
  int64_t number = blockIdx.x;
  GradientItem item = find_item(b.stage, items, &number);
  request_token_rows(b, item, s.rows[0]);
  request_entering(b, item, s);
  request_leaving(b, item, s);
  float own = request_number(b.stage, item);
  for (int turn = 0; item.chunk.tokens > 0; turn ^= 1) {
    number += gridDim.x;
    const GradientItem next = find_item(b.stage, items, &number);
    request_token_rows(b, next, s.rows[turn ^ 1]);
    put_number(s, turn, own);
    own = request_number(b.stage, next);
    const GradientPart part{s,          s.rows[turn], s.numbers[turn].G,       s.numbers[turn].beta,
                            item.chunk, item.head,    16 * (tile::warp() % 4), tile::warp() / 4};
    run_item<Io>(b, part, next);
    item = next;
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
