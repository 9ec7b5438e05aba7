// Runs solve_wy: solve_tril and wy_fast as one stage; the inverse stays on chip.
//
// Math      X = (I + A)^-1, u = X diag(beta) v, w = X diag(beta exp G) k
// Roles     a CTA of 128 threads has a (chunk, head): all four warps invert (triangle.cuh), then a
//           warp has 16 rows of every 64 of u and w (wy.cuh)
// Pipeline  request 64 columns of v -> A -> X -> X with either factor, rounded -> 64 columns of v,
//           then of k, one block ahead
// Memory    tiles of 8 KB of X with either factor and of one turn of columns, then X, where the
//           other turn and the results come when X is no longer needed: 44 KB at C = 64
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_SOLVE_WY_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_SOLVE_WY_CUH_

#include "cuda/device/plain_products.cuh"
#include "cuda/kernels/stages/inverse.cuh"
#include "cuda/kernels/stages/wy.cuh"

namespace sluice::cuda::stages {

using device::Chunk, device::chunk_of, device::load_numbers, device::plain_wy;
using device::PlainMemory, device::StageParams, device::TokenNumbers;
using tile::kTile;

/// Where G and beta lie: after everything else.
template <int C>
inline constexpr int64_t kNumbersAt =
    solve_wy_bytes(C) - static_cast<int64_t>(sizeof(TokenNumbers));

/// X of the item, which all threads see at the end; written to A_inverse where that is given.
template <int C, int kThreads>
__device__ __forceinline__ void solve_chunk(const StageParams& p, const Chunk& chunk, int64_t head,
                                            Triangle<C>& X) {
  load_lower<C, kThreads>(p, chunk, head, X);
  __syncthreads();
  invert_triangle<C, kThreads>(X);
  if (p.A_inverse.data != nullptr) store_lower<C, kThreads>(p, chunk, head, X);
}

/// Items are slots x heads.
template <class Io, int C>
__global__ void __launch_bounds__(kBlockThreads)
    solve_wy_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  constexpr int kBlocks = C / kRows, kTiles = kBlocks * (kBlocks + 1) / 2;
  constexpr int64_t kShared = 2 * kTiles + kBlocks;  // tiles before X
  const uint32_t base = ptx::shared_address(dynamic_shared), ring = base + 2 * kTiles * kTile,
                 over = base + kShared * kTile;
  auto& X = *reinterpret_cast<Triangle<C>*>(dynamic_shared + kShared * kTileBytes);
  auto& numbers = *reinterpret_cast<TokenNumbers*>(dynamic_shared + kNumbersAt<C>);
  const InverseTiles tiles{base, base + kTiles * kTile, 0};
  const ColumnTiles columns{ring, over, dynamic_shared + (kShared + kBlocks) * kTileBytes};
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    const int last = (chunk.tokens - 1) / kRows;
    request_columns(p, chunk, head, last, 0, columns.first);
    load_numbers(p, chunk, head, numbers);
    solve_chunk<C, kBlockThreads>(p, chunk, head, X);
    for (int block = 0; block <= last; ++block) {
      put_inverse<Io>(chunk, block, numbers, tiles, [&](int token, int first, float(&x)[8]) {
        const auto* const from = reinterpret_cast<const float4*>(X.at(token, first));
        const float4 low = from[0], high = from[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
      });
    }
    multiply_all_columns<Io>(p, chunk, head, last, tiles, columns);
    __syncthreads();
  }
}

/// Any dtype and stride. Items are slots x heads.
template <int C>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_solve_wy_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& X = *reinterpret_cast<Triangle<C>*>(dynamic_shared);
  auto& memory = *reinterpret_cast<PlainMemory*>(dynamic_shared + sizeof(X));
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    load_numbers(p, chunk, head, memory.numbers);
    solve_chunk<C, kPlainThreads>(p, chunk, head, X);
    plain_wy(p, memory, chunk, head, [&](int i, int term) { return *X.at(i, term); });
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_SOLVE_WY_CUH_
