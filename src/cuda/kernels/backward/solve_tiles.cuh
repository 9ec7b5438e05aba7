// Solves a chunk's triangle by tensor cores.
//
// Math      M_ij = exp(G_i - G_j) k_i . k_j below the diagonal, L = (I + M diag(beta))^-1, B = L M:
//           with R = v - diag(exp G) k S of the state S that enters, e = R - B diag(beta) R
// Roles     a CTA of 128 threads has one (chunk, head); a warp 16 rows of M
// Pipeline  request k -> M diag(beta) -> L -> B
// Memory    SolveShared, 35 KB: four CTAs hide each other's waits
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

/// M diag(beta), where the inverse will be; rows past the end are zeros.
template <class Io>
__device__ __forceinline__ void put_triangle(SolveShared<Io>& s, int tokens) {
  const int row0 = 16 * tile::warp();
  WarpAccumulator<8> part;
  part.clear();
  for (int half = 0; half < 2; ++half) {
    const uint32_t k = ptx::shared_address(s.k.block(half));
    tile::multiply<Io, true, 8>(part, k, row0, k, 0);
  }
  part.for_each_pair([&](int row, int j, float x, float y) {
    const int i = row0 + row;
    // WHY a choice: above the diagonal the exponential may be infinite.
    x = i > j && i < tokens ? s.beta[j] * decay(s.G[i] - s.G[j]) * x : 0.0f;
    y = i > j + 1 && i < tokens ? s.beta[j + 1] * decay(s.G[i] - s.G[j + 1]) * y : 0.0f;
    *reinterpret_cast<float2*>(s.X.at(i, j)) = {x, y};
  });
}

/// B from L, to memory: two threads a row.
template <class Io>
__device__ __forceinline__ void store_correction(const TokenRows& to, const SolveShared<Io>& s,
                                                 const Chunk& chunk, int64_t head) {
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
      const float2 x = *reinterpret_cast<const float2*>(s.X.at(i, j));
      words[pair] =
          P::pack(j < i ? -x.x / s.beta[j] : 0.0f, j + 1 < i ? -x.y / s.beta[j + 1] : 0.0f);
    }
    *reinterpret_cast<uint4*>(out + 8 * piece) = {words[0], words[1], words[2], words[3]};
  }
}

/// Items are slots x heads.
template <class Io>
__global__ void __launch_bounds__(kSolveThreads, 4)
    solve_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  auto& s = *reinterpret_cast<SolveShared<Io>*>(ptx::dynamic_memory());
  const StageParams& p = b.stage;
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    const int64_t keys = device::key_head(p, head);
    for (int half = 0; half < 2; ++half) {
      device::request_tile<kSolveThreads>(ptx::shared_address(s.k.block(half)), p.k, chunk, keys, 0,
                                          int64_t{64} * half);
    }
    ptx::close_copies();
    if (tile::warp() == 0) {
      const LaneNumbers numbers = request_numbers(p, chunk, head);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s.G[tile::lane() + 32 * i] = numbers.G[i];
        s.beta[tile::lane() + 32 * i] = column_strength(numbers.beta[i]);
      }
    }
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: k, G and beta are there
    put_triangle(s, chunk.tokens);
    __syncthreads();
    tile::invert_triangle<kTokens, kSolveThreads>(s.X);
    store_correction(b.B, s, chunk, head);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_
