// Runs chunk_o of 16-bit numbers from given states, by tensor cores.
//
// Math      o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v)
// Roles     a CTA of 128 threads has 64 rows of o of one (chunk, head); a warp 16 of them
// Pipeline  request q, k | v, h -> P = q k^T with decays, in registers -> 64 columns of o at a time
// Memory    tiles of 8 KB: q K / 64, k K / 64 C / 64, v C / 64, h K / 64, o one; 64 KB at K = 128,
//           C = 64: three CTAs on a multiprocessor hide each other's waits
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_OUTPUTS_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_OUTPUTS_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::stages {

using device::Chunk, device::chunk_of, device::chunks_before, device::decay, device::key_head;
using device::kMostTokens, device::load_sums, device::request_matrix, device::request_tile;
using device::StageParams, device::state_at, device::store_rows;
using tile::multiply, tile::WarpAccumulator, tile::put_part, tile::warp;
using tile::pack, tile::kTile, tile::WarpOperand;

/// Where the tiles lie, as shared addresses.
struct OutputTiles {
  uint32_t q, k, v, h, o, end;
  __device__ __forceinline__ OutputTiles(uint32_t base, int blocks, int widths) {
    const auto b = static_cast<uint32_t>(blocks), w = static_cast<uint32_t>(widths);
    q = base;
    k = q + w * kTile;
    v = k + b * w * kTile;
    h = v + b * kTile;
    o = h + w * kTile;
    end = o + kTile;
  }
};

/// Requests 64 columns of v and of h; state: -1 for zeros.
__device__ __forceinline__ void request_values(const StageParams& p, const OutputTiles& tiles,
                                               const Chunk& chunk, int64_t head, int block,
                                               int64_t state, int64_t column) {
  for (int b = 0; b <= block; ++b) {
    request_tile<kBlockThreads>(tiles.v + static_cast<uint32_t>(b) * kTile, p.values, chunk, head,
                                b * kRows, column);
  }
  const auto* h = static_cast<const uint16_t*>(p.h.data) + max(state, int64_t{0}) + column;
  for (int w = 0; w < p.K / kColumns; ++w) {
    request_matrix<kBlockThreads>(tiles.h + static_cast<uint32_t>(w) * kTile,
                                  h + w * kColumns * p.V, p.V, state >= 0);
  }
  ptx::close_copies();
}

/// exp(G_i - G_j) (q_i . k_j) for the warp's rows i and one block of columns j <= i.
template <class Io>
__device__ __forceinline__ WarpOperand scores_of(uint32_t q, uint32_t k, int widths, const float* G,
                                                 int row, int row0, int column0) {
  WarpAccumulator<8> part;
  part.clear();
  for (uint32_t w = 0; w < static_cast<uint32_t>(widths); ++w) {
    multiply<Io, true, 8>(part, q + w * kTile, row, k + w * kTile, 0);
  }
  part.for_each_pair([&](int r, int c, float& x, float& y) {
    const int i = row0 + row + r, j = column0 + c;
    // WHY a choice: above the diagonal the exponential may be infinite.
    x = i >= j ? decay(G[i] - G[j]) * x : 0.0f;
    y = i >= j + 1 ? decay(G[i] - G[j + 1]) * y : 0.0f;
  });
  return pack<Io>(part);
}

/// Items are slots x heads x blocks of 64 rows.
template <class Io>
__global__ void __launch_bounds__(kBlockThreads, 3)
    outputs_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const int blocks = p.C / kRows, widths = static_cast<int>(p.K) / kColumns, row = 16 * warp();
  const uint32_t base = ptx::shared_address(dynamic_shared);
  const OutputTiles tiles(base, blocks, widths);
  auto& G = *reinterpret_cast<float(*)[kMostTokens]>(dynamic_shared + (tiles.end - base));
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int block = static_cast<int>(item % blocks), row0 = block * kRows;
    const int64_t head = item / blocks % p.HV, keys = key_head(p, head);
    const Chunk chunk = chunk_of(p, item / blocks / p.HV);
    if (row0 >= chunk.tokens) continue;
    for (int w = 0; w < widths; ++w) {
      const auto place = static_cast<uint32_t>(w);
      request_tile<kBlockThreads>(tiles.q + place * kTile, p.q, chunk, keys, row0, w * kColumns);
      for (int b = 0; b <= block; ++b) {
        request_tile<kBlockThreads>(tiles.k + (static_cast<uint32_t>(b * widths) + place) * kTile,
                                    p.k, chunk, keys, b * kRows, w * kColumns);
      }
    }
    ptx::close_copies();
    const int64_t before = chunks_before(p, chunk.seq);
    const int64_t state =
        device::has_state(p, chunk, before) ? state_at(p, chunk, before, head) : -1;
    request_values(p, tiles, chunk, head, block, state, 0);
    if (warp() == 0) load_sums(p, chunk, head, G);
    ptx::wait_for_copies<1>();
    __syncthreads();
    WarpOperand scores[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      if (b > block) continue;
      scores[b] = scores_of<Io>(tiles.q, tiles.k + static_cast<uint32_t>(b * widths) * kTile,
                                widths, G, row, row0, b * kRows);
    }
    for (int64_t column = 0; column < p.V; column += kColumns) {
      ptx::wait_for_copies<0>();
      __syncthreads();
      WarpAccumulator<8> out;
      out.clear();
      for (uint32_t w = 0; w < static_cast<uint32_t>(widths); ++w) {
        multiply<Io, false, 8>(out, tiles.q + w * kTile, row, tiles.h + w * kTile, 0);
      }
      out.for_each_pair([&](int r, int, float& x, float& y) {
        const float factor = decay(G[row0 + row + r]);
        x *= factor, y *= factor;
      });
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (b > block) continue;
        multiply<Io, 8>(out, scores[b], tiles.v + static_cast<uint32_t>(b) * kTile, 0);
      }
      out.for_each_pair([&](int, int, float& x, float& y) { x *= p.scale, y *= p.scale; });
      put_part<Io>(tiles.o, row, 0, out);
      store_rows<8>(dynamic_shared + (tiles.o - base), row, 0, p.o, chunk, head, row0 + row,
                    column);
      __syncthreads();
      if (column + kColumns < p.V) {
        request_values(p, tiles, chunk, head, block, state, column + kColumns);
      }
    }
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_OUTPUTS_CUH_
