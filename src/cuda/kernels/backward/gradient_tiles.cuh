// Gradients of a chunk's tokens from the states around it, by tensor cores.
//
// Math      docs/math.md (17) in an order that needs neither q k^T nor k k^T: with
//             dQ = scale diag(exp G) d_o S^T + X k
//             P  = diag(E) N D'^T + X^T q + Z^T k
//             R  = Z' k - diag(exp G) Y S^T,  Z = diag(beta) Z',  so that dK = P + diag(beta) R,
//           dG_i = q_i . dQ_i - k_i . P_i + beta_i k_i . R_i, and dbeta_i = Y_i . v_i + k_i . R_i
// Roles     a CTA of 256 threads has one (chunk, head); warp w 16 rows from 16 (w % 4) on, and half
//           of the columns
// Pipeline  all operands requested at the start, in the order of their use:
//           X (d_o, N) -> Y, dv (L, dN) -> Z (Y, N) -> dQ (S, q, k) -> R -> P (D')
// Memory    tiles of 8 KB: rows 10, S 4, D' 4, squares 3: 172 KB
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/tiles.cuh"

namespace sluice::cuda::backward {

/// Sums of rows, those of either half of the columns.
using HalfSums = float[2][kTokens];

struct GradientTiles {
  RowTiles d_o, N, Y, q, k;      ///< Y: dN first
  RowTiles S[kWidths];           ///< [k / 64][v / 64]: that enters
  RowTiles D[kWidths];           ///< likewise: the gradient of the one that leaves
  uint8_t X[kTileBytes];         ///< [i][j]
  uint8_t Z[kTileBytes];         ///< with beta
  uint8_t L[kTileBytes];         ///< (I + A)^-1, then Z without beta
  stages::TokenNumbers numbers;  ///< G and beta
  HalfSums query, key, correction, leave, value;
  float warps[kWarps];
};
static_assert(sizeof(GradientTiles) <= kGradientTileBytes);

/// A CTA's chunk and head, and a warp's part of them.
struct GradientPart {
  Chunk chunk;
  int64_t head;
  int row, half;  ///< the warp's
  __device__ __forceinline__ int low() const { return row + stages::lane_row(); }
};

/// Requests a matrix [K][V] of 16-bit numbers.
__device__ __forceinline__ void request_state(RowTiles (&to)[kWidths], const void* states,
                                              int64_t offset, int64_t V) {
  const auto* const from = static_cast<const uint16_t*>(states) + offset;
  for (int i = 0; i < kWidths * kWidths; ++i) {
    const int k = i / kWidths, v = i % kWidths;
    stages::request_matrix<kThreads>(to[k].at(v), from + 64 * (k * V + v), V);
  }
}

/// In groups: d_o, N | L, dN | q, k, S | D'.
__device__ __forceinline__ void request_operands(const BackwardParams& b, GradientTiles& s,
                                                 const GradientPart& part) {
  const StageParams& p = b.stage;
  const Chunk& chunk = part.chunk;
  const int64_t head = part.head, keys = stages::key_head(p, head);
  request_rows<kThreads>(s.d_o, b.d_o, chunk, head);
  request_rows<kThreads>(s.N, b.delta_rule ? p.v_new : p.values, chunk, head);
  ptx::close_copies();
  if (b.delta_rule) {
    stages::request_tile<kThreads>(ptx::shared_address(s.L), p.A_inverse, chunk, head, 0, 0);
  }
  request_rows<kThreads>(s.Y, b.dN, chunk, head);
  ptx::close_copies();
  const int64_t entry = stages::state_at(p, chunk, stages::chunks_before(p, chunk.seq), head);
  request_rows<kThreads>(s.q, p.q, chunk, keys);
  request_rows<kThreads>(s.k, p.k, chunk, keys);
  request_state(s.S, p.h.data, entry, p.V);
  ptx::close_copies();
  request_state(s.D, b.dh.data, entry, p.V);
  ptx::close_copies();
}

/// left right^T over all of V: the warp's rows and its 32 of 64 tokens.
template <class Io>
__device__ __forceinline__ void multiply_tokens(Part<4>& sum, const GradientPart& part,
                                                const RowTiles& left, const RowTiles& right) {
  stages::clear<4>(sum);
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, true, 4>(sum, left.at(w), part.row, right.at(w), 32 * part.half);
  }
}

/// X = scale tril(Gamma * d_o N^T).
template <class Io>
__device__ __forceinline__ void token_tile(const BackwardParams& b, GradientTiles& s,
                                           const GradientPart& part) {
  const float* const G = s.numbers.G;
  Part<4> x;
  multiply_tokens<Io>(x, part, s.d_o, s.N);
  for_each_pair<4>(x, [&](int r, int c, float& first, float& second) {
    const int i = part.row + r, j = 32 * part.half + c;
    // WHY a choice: above the diagonal the exponential may be infinite.
    first = i >= j ? b.stage.scale * decay(G[i] - G[j]) * first : 0.0f;
    second = i > j ? b.stage.scale * decay(G[i] - G[j + 1]) * second : 0.0f;
  });
  stages::put_part<Io, 4>(ptx::shared_address(s.X), part.row, 32 * part.half, x);
}

/// Y = L^T dN in the place of dN, and dv; with simple GLA dv = dN.
template <class Io>
__device__ __forceinline__ void value_tile(const BackwardParams& b, GradientTiles& s,
                                           const GradientPart& part) {
  Part<8> y;
  stages::clear<8>(y);
  const float* const beta = s.numbers.beta;
  if (b.delta_rule) {
    product<Io, true, false, 8>(y, ptx::shared_address(s.L), part.row, s.Y.at(part.half), 0);
  } else {
    for_each_pair<8>(y, [&](int r, int c, float& first, float& second) {
      const float2 given = pair_at<Io>(s.Y.tile[part.half], part.row + r, c);
      first = given.x, second = given.y;
    });
  }
  const OutputRows dv(b.dv, part.chunk, part.head);
  const auto* const v = static_cast<const uint16_t*>(b.stage.values.data) +
                        at(b.stage.values, part.chunk.batch, part.chunk.row, part.head);
  LaneSums sums;
  for_each_pair<8>(y, [&](int r, int c, float first, float second) {
    const int i = part.row + r, column = 64 * part.half + c;
    const float factor = b.delta_rule ? beta[i] : 1.0f;
    if (b.dv.data != nullptr) dv.store(i, column, factor * first, factor * second);
    if (!b.delta_rule || i >= part.chunk.tokens) return;
    const uint32_t word =
        __ldg(reinterpret_cast<const uint32_t*>(v + i * b.stage.values.token_stride + column));
    sums.add(r, first, second, {tile::Packed<Io>::first(word), tile::Packed<Io>::second(word)});
  });
  if (!b.delta_rule) return;
  sums.put(s.value[part.half], part.row);
  __syncthreads();  // SYNC: nobody reads dN or L
  stages::put_part<Io, 8>(s.Y.at(part.half), part.row, 0, y);
}

/// Z and Z': -stril(Gamma * Y N^T) with and without beta.
template <class Io>
__device__ __forceinline__ void correction_tiles(GradientTiles& s, const GradientPart& part) {
  const float *const G = s.numbers.G, *const beta = s.numbers.beta;
  Part<4> z;
  multiply_tokens<Io>(z, part, s.Y, s.N);
  for_each_pair<4>(z, [&](int r, int c, float& first, float& second) {
    const int i = part.row + r, j = 32 * part.half + c;
    first = i > j ? -decay(G[i] - G[j]) * first : 0.0f;
    second = i > j + 1 ? -decay(G[i] - G[j + 1]) * second : 0.0f;
  });
  stages::put_part<Io, 4>(ptx::shared_address(s.L), part.row, 32 * part.half, z);
  scale_rows<4>(z, beta[part.low()], beta[part.low() + 8]);
  stages::put_part<Io, 4>(ptx::shared_address(s.Z), part.row, 32 * part.half, z);
}

/// rows state^T over all of V: the warp's rows and its 64 columns of K.
template <class Io>
__device__ __forceinline__ void multiply_state(Part<8>& sum, const GradientPart& part,
                                               const RowTiles& rows,
                                               const RowTiles (&state)[kWidths]) {
  stages::clear<8>(sum);
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, true, 8>(sum, rows.at(w), part.row, state[part.half].at(w), 0);
  }
}

__device__ __forceinline__ void store_part(const TokenRows& to, const GradientPart& part,
                                           Part<8>& x) {
  const OutputRows rows(to, part.chunk, part.head);
  for_each_pair<8>(x, [&](int r, int c, float first, float second) {
    rows.store(part.row + r, 64 * part.half + c, first, second);
  });
}

/// dQ of this head, and its products with q.
template <class Io>
__device__ __forceinline__ void query_part(const BackwardParams& b, GradientTiles& s,
                                           const GradientPart& part) {
  const float* const G = s.numbers.G + part.low();
  Part<8> dq;
  multiply_state<Io>(dq, part, s.d_o, s.S);
  scale_rows<8>(dq, b.stage.scale * decay(G[0]), b.stage.scale * decay(G[8]));
  product<Io, false, false, 8>(dq, ptx::shared_address(s.X), part.row, s.k.at(part.half), 0);
  put_row_products<Io>(dq, s.q.tile[part.half], part.row, s.query[part.half]);
  if (b.dq.data != nullptr) store_part(b.dq_parts, part, dq);
}

/// R, and its products with k.
template <class Io>
__device__ __forceinline__ void correction_part(Part<8>& R, GradientTiles& s,
                                                const GradientPart& part) {
  const float* const G = s.numbers.G + part.low();
  multiply_state<Io>(R, part, s.Y, s.S);
  scale_rows<8>(R, -decay(G[0]), -decay(G[8]));
  product<Io, false, false, 8>(R, ptx::shared_address(s.L), part.row, s.k.at(part.half), 0);
  put_row_products<Io>(R, s.k.tile[part.half], part.row, s.correction[part.half]);
}

/// P, its products with k, and those of its term with D'.
template <class Io>
__device__ __forceinline__ void key_part(const BackwardParams& b, Part<8>& P, GradientTiles& s,
                                         const GradientPart& part) {
  const float* const G = s.numbers.G + part.low();
  const float last = s.numbers.G[stages::kMostTokens - 1];
  const uint8_t* const k = s.k.tile[part.half];
  multiply_state<Io>(P, part, s.N, s.D);
  scale_rows<8>(P, decay(last - G[0]), decay(last - G[8]));
  put_row_products<Io>(P, k, part.row, s.leave[part.half]);
  product<Io, true, false, 8>(P, ptx::shared_address(s.X), part.row, s.q.at(part.half), 0);
  if (b.delta_rule) {
    product<Io, true, false, 8>(P, ptx::shared_address(s.Z), part.row, s.k.at(part.half), 0);
  }
  put_row_products<Io>(P, k, part.row, s.key[part.half]);
}

/// <S, D'>. All threads, which get it.
template <class Io>
__device__ __forceinline__ float state_product(GradientTiles& s) {
  using Pack = tile::Packed<Io>;
  const auto *const S = reinterpret_cast<const uint4*>(s.S), *const D =
                                                                 reinterpret_cast<const uint4*>(
                                                                     s.D);
  constexpr int kPieces = static_cast<int>(kWidths * kWidths * kTileBytes / 16);
  float sum = 0.0f;
  for (auto i = static_cast<int>(threadIdx.x); i < kPieces; i += kThreads) {
    const uint4 x = S[i], y = D[i];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w}, c[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      sum = fmaf(Pack::first(a[word]), Pack::first(c[word]), sum);
      sum = fmaf(Pack::second(a[word]), Pack::second(c[word]), sum);
    }
  }
  return cta_sum(sum, s.warps);
}

/// Gradients of gates and write strengths, by the first warp; `product` is <S, D'>.
__device__ __forceinline__ void store_token_gates(const BackwardParams& b, GradientTiles& s,
                                                  const GradientPart& part, float product) {
  if (threadIdx.x >= 32) return;
  const auto lane = static_cast<int>(threadIdx.x);
  const auto both = [](const HalfSums& sums, int i) { return sums[0][i] + sums[1][i]; };
  const auto strength = [&](int i) { return b.delta_rule ? both(s.correction, i) : 0.0f; };
  const auto gate = [&](int i) {
    return both(s.query, i) - both(s.key, i) + s.numbers.beta[i] * strength(i);
  };
  const float leave = warp_sum(both(s.leave, lane) + both(s.leave, lane + 32));
  const float whole = leave + decay(s.numbers.G[stages::kMostTokens - 1]) * product;
  // A lane has two tokens; those after them are of the lanes before.
  const int last = kTokens - 1 - 2 * lane;
  float dg = whole + stages::sum_before_lane(gate(last) + gate(last - 1));
#pragma unroll
  for (int i = last; i >= last - 1; --i) {
    dg += gate(i);
    if (i >= part.chunk.tokens) continue;
    const float value = b.delta_rule ? both(s.value, i) : 0.0f;
    store_gate(b, part.chunk, part.head, i, dg, value + strength(i));
  }
}

/// Items are slots x heads.
template <class Io>
__global__ void __launch_bounds__(kThreads, 1)
    gradient_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<GradientTiles*>(dynamic_shared);
  const StageParams& p = b.stage;
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const GradientPart part{stages::chunk_of(p, item / p.HV), item % p.HV,
                            16 * (stages::warp() % 4), stages::warp() / 4};
    if (part.chunk.tokens == 0) continue;
    request_operands(b, s, part);
    stages::load_numbers(p, part.chunk, part.head, s.numbers);
    ptx::wait_for_copies<3>();
    __syncthreads();  // SYNC: d_o and N are there
    token_tile<Io>(b, s, part);
    ptx::wait_for_copies<2>();
    __syncthreads();  // SYNC: L and dN are there
    value_tile<Io>(b, s, part);
    ptx::wait_for_copies<1>();
    __syncthreads();  // SYNC: X, Y, q, k and S are there
    if (b.delta_rule) correction_tiles<Io>(s, part);
    query_part<Io>(b, s, part);
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: Z and D are there
    Part<8> dk;
    key_part<Io>(b, dk, s, part);
    if (b.delta_rule) {
      Part<8> R;
      correction_part<Io>(R, s, part);
      const float* const beta = s.numbers.beta + part.low();
      scale_rows<8>(R, beta[0], beta[8]);
#pragma unroll
      for (int i = 0; i < 32; ++i) dk[i / 4][i % 4] += R[i / 4][i % 4];
    }
    if (b.dk.data != nullptr) store_part(b.dk_parts, part, dk);
    const float product = state_product<Io>(s);  // all sums are there behind it
    store_token_gates(b, s, part, product);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
