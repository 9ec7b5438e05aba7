// Runs scaled_dot_kkt of 16-bit keys by tensor cores, and cumsum_kkt, which also writes G.
//
// Math      A_ij = beta_i exp(G_i - G_j) (k_i . k_j), i > j
// Roles     a CTA of 128 threads has 64 rows of A of one (chunk, head); a warp 16 of them
// Pipeline  request keys -> sums of gates meanwhile -> product, 64 columns at a time -> A
// Memory    tiles of 8 KB: K / 64 of the rows' keys, as many of the columns' before them
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_KKT_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_KKT_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::decay, device::key_head;
using device::load_numbers, device::Number, device::request_tile, device::StageParams;
using device::store_sums, device::TokenNumbers, device::TokenRows;
using tile::kTile, tile::multiply, tile::WarpAccumulator, tile::warp;

/// Two neighbouring numbers of A, whose rows are aligned to pairs.
__device__ __forceinline__ void store_pair(const TokenRows& rows, int64_t element, float x,
                                           float y) {
  if (rows.number == Number::kFloat32) {
    *reinterpret_cast<float2*>(static_cast<float*>(rows.data) + element) = {x, y};
  } else {
    const uint32_t pair = device::to_bits(rows.number, x) |
                          static_cast<uint32_t>(device::to_bits(rows.number, y)) << 16;
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(rows.data) + element) = pair;
  }
}

/// Items are slots x heads x blocks of 64 rows.
template <class Io>
__global__ void __launch_bounds__(kBlockThreads)
    kkt_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const uint32_t tiles = ptx::shared_address(dynamic_shared);
  const int blocks = p.C / kRows, widths = static_cast<int>(p.K) / kColumns;
  auto& numbers = *reinterpret_cast<TokenNumbers*>(dynamic_shared + blocks * widths * kTileBytes);
  device::follow();
  const int64_t each = (items + gridDim.x - 1) / gridDim.x,
                end = min((blockIdx.x + 1) * each, items);
  for (int64_t item = blockIdx.x * each; item < end; ++item) {
    const int block = static_cast<int>(item % blocks), row0 = block * kRows;
    const int64_t head = item / blocks % p.HV;
    const Chunk chunk = chunk_of(p, item / blocks / p.HV);
    if (row0 >= chunk.tokens) continue;
    for (int b = 0; b <= block; ++b) {
      for (int w = 0; w < widths; ++w) {
        request_tile<kBlockThreads>(tiles + static_cast<uint32_t>(b * widths + w) * kTile, p.k,
                                    chunk, key_head(p, head), b * kRows, w * kColumns);
      }
    }
    ptx::close_copies();
    load_numbers(p, chunk, head, numbers);
    if (block == 0) store_sums(p, chunk, head, numbers);
    ptx::wait_for_copies<0>();
    __syncthreads();
    for (int b = 0; b < blocks; ++b) {
      WarpAccumulator<8> part;
      part.clear();
      for (int w = 0; w < widths && b <= block; ++w) {
        multiply<Io, true, 8>(part, tiles + static_cast<uint32_t>(block * widths + w) * kTile,
                              16 * warp(), tiles + static_cast<uint32_t>(b * widths + w) * kTile,
                              0);
      }
      part.for_each_pair([&](int row, int column, float x, float y) {
        const int i = row0 + 16 * warp() + row, j = b * kRows + column;
        if (i >= chunk.tokens) return;
        const float G = numbers.G[i], beta = numbers.beta[i];
        // WHY a choice: above the diagonal the exponential may be infinite.
        x = i > j ? beta * decay(G - numbers.G[j]) * x : 0.0f;
        y = i > j + 1 ? beta * decay(G - numbers.G[j + 1]) * y : 0.0f;
        store_pair(p.A, at(p.A, chunk.batch, chunk.row + i, head) + j, x, y);
      });
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_KKT_CUH_
