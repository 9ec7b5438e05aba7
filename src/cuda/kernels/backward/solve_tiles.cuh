// Solves a chunk's triangle by tensor cores.
//
// Math      M_ij = exp(G_i - G_j) k_i . k_j below the diagonal, L = (I + M diag(beta))^-1, B = L M:
//           with R = v - diag(exp G) k S of the state S that enters, e = R - B diag(beta) R
// Roles     a CTA of 128 threads has one (chunk, key head), and of its value heads every
//           gridDim.y-th, which share k k^T; a warp has 16 rows of M
// Pipeline  request k -> k k^T -> of each value head M diag(beta) -> L -> B
// Memory    SolveShared, 36 KB: four CTAs hide each other's waits
// Floor     docs/kernels/backward.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_

#include "cuda/kernels/backward/tile_numbers.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::backward {

using tile::kTile, tile::WarpAccumulator;

/// beta of a column of M. NUM B is L without the columns' betas, -L_ij / beta_j: a beta of zero or
/// close to it is taken for 2^-60, which moves L by less than 2^-60 and leaves B its digits.
__device__ __forceinline__ float column_strength(float beta) {
  return fabsf(beta) < 0x1p-60f ? 0x1p-60f : beta;
}

/// Value head `turn` of a key head.
__device__ __forceinline__ int solved_head(const StageParams& p, int keys, int turn) {
  const int H = static_cast<int>(p.H), r = static_cast<int>(p.r);
  return p.head_map_cyclic ? keys + turn * H : keys * r + turn;
}

/// k k^T, the lanes' numbers of it, to k's place. PERF registers would leave three CTAs room.
template <class Io>
__device__ __forceinline__ void multiply_keys(SolveShared<Io>& s, int halves) {
  WarpAccumulator<8> part;
  part.clear();
  for (int half = 0; half < halves; ++half) {
    const uint32_t k = ptx::shared_address(s.k.block(half));
    tile::multiply<Io, true, 8>(part, k, 16 * tile::warp(), k, 0);
  }
  __syncthreads();  // SYNC: nobody reads k
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    s.products()[j][threadIdx.x] =
        make_float4(part.x[j][0], part.x[j][1], part.x[j][2], part.x[j][3]);
  }
}

/// M diag(beta), where the inverse will be; rows past the end are zeros.
template <class Io>
__device__ __forceinline__ void put_triangle(SolveShared<Io>& s, const SolveNumbers& of,
                                             int tokens) {
  const int row0 = 16 * tile::warp() + tile::lane_row();
#pragma unroll
  for (int at = 0; at < 8; ++at) {
    const float4 product = s.products()[at][threadIdx.x];
    const int j = 8 * at + tile::lane_column();
    const auto put = [&](int i, float x, float y) {
      // WHY a choice: above the diagonal the exponential may be infinite.
      x = i > j && i < tokens ? of.beta[j] * decay(of.G[i] - of.G[j]) * x : 0.0f;
      y = i > j + 1 && i < tokens ? of.beta[j + 1] * decay(of.G[i] - of.G[j + 1]) * y : 0.0f;
      *reinterpret_cast<float2*>(s.X.at(i, j)) = {x, y};
    };
    put(row0, product.x, product.y);
    put(row0 + 8, product.z, product.w);
  }
}

/// -x / beta of one over beta. NUM rounded as a division is.
__device__ __forceinline__ float divide(float x, float beta, float one_over) {
  const float quotient = -x * one_over;
  return fmaf(fmaf(-quotient, beta, -x), one_over, quotient);
}

/// B from L, to memory: two threads a row.
template <class Io>
__device__ __forceinline__ void store_correction(const TokenRows& to, const SolveShared<Io>& s,
                                                 const SolveNumbers& of, const Chunk& chunk,
                                                 int64_t head) {
  using P = tile::Packed<Io>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int i = thread / 2, first = thread % 2 * 32;
  if (i >= chunk.tokens) return;
  auto* const out =
      static_cast<uint16_t*>(to.data) + at(to, chunk.batch, chunk.row + i, head) + first;
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    uint32_t words[4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const int j = first + 8 * piece + 2 * pair;
      const auto x = *reinterpret_cast<const float2*>(s.X.at(i, j)),
                 beta = *reinterpret_cast<const float2*>(&of.beta[j]),
                 one_over = *reinterpret_cast<const float2*>(&of.one_over[j]);
      words[pair] = P::pack(j < i ? divide(x.x, beta.x, one_over.x) : 0.0f,
                            j + 1 < i ? divide(x.y, beta.y, one_over.y) : 0.0f);
    }
    *reinterpret_cast<uint4*>(out + 8 * piece) = {words[0], words[1], words[2], words[3]};
  }
}

/// Numbers of a head's tokens to their place; one warp.
__device__ __forceinline__ void put_numbers(const LaneNumbers& numbers, SolveNumbers& to) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float beta = column_strength(numbers.beta[i]);
    const int token = tile::lane() + 32 * i;
    to.G[token] = numbers.G[i];
    to.beta[token] = beta;
    to.one_over[token] = 1.0f / beta;
  }
}

/// B of a chunk's value heads of a key head, whose k and first numbers are there.
template <class Io>
__device__ __forceinline__ void solve_heads(const BackwardParams& b, SolveShared<Io>& s,
                                            const Chunk& chunk, int keys) {
  const StageParams& p = b.stage;
  const bool reads = tile::warp() == 0;
  multiply_keys(s, static_cast<int>(p.K) / 64);
  int place = 0;
#pragma unroll 1
  for (int turn = static_cast<int>(blockIdx.y); turn < static_cast<int>(p.r); place ^= 1) {
    const int next = turn + static_cast<int>(gridDim.y);
    LaneNumbers numbers{};
    put_triangle(s, s.numbers[place], chunk.tokens);
    if (reads && next < static_cast<int>(p.r)) {
      numbers = request_numbers(p, chunk, solved_head(p, keys, next));
    }
    __syncthreads();
    tile::invert_triangle<kTokens, kSolveThreads>(s.X);
    store_correction(b.B, s, s.numbers[place], chunk, solved_head(p, keys, turn));
    if (reads && next < static_cast<int>(p.r)) put_numbers(numbers, s.numbers[place ^ 1]);
    __syncthreads();  // SYNC: nobody reads L, and the next head's numbers are there
    turn = next;
  }
}

/// Items are slots x key heads.
template <class Io>
__global__ void __launch_bounds__(kSolveThreads, kSolveCtas)
    solve_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  auto& s = *reinterpret_cast<SolveShared<Io>*>(ptx::dynamic_memory());
  const StageParams& p = b.stage;
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, item / p.H);
    const int keys = static_cast<int>(item % p.H);
    if (chunk.tokens == 0) continue;
    for (int half = 0; half < static_cast<int>(p.K) / 64; ++half) {
      device::request_tile<kSolveThreads>(ptx::shared_address(s.k.block(half)), p.k, chunk, keys, 0,
                                          int64_t{64} * half);
    }
    ptx::close_copies();
    if (tile::warp() == 0) {
      put_numbers(request_numbers(p, chunk, solved_head(p, keys, static_cast<int>(blockIdx.y))),
                  s.numbers[0]);
    }
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: k, G and beta are there
    solve_heads(b, s, chunk, keys);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_
