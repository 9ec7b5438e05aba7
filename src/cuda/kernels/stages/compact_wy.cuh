// Runs wy_fast of 128 columns of 16-bit keys and values, chunks of 64 tokens.
//
// Math      u = A_inverse diag(beta) v, w = A_inverse diag(beta exp G) k: in the order of wy.cuh
// Roles     a CTA of 128 threads has one (chunk, head), a warp 16 rows of u and w
// Pipeline  request A_inverse, numbers, v, k -> A_inverse with either factor, left operands in
//           registers -> 64 columns of u, then of w, at a time
// Memory    tiles of 8 KB: A_inverse, whose rows make room for their warp's results; v, k two each
// Floor     docs/kernels/stages.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_COMPACT_WY_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_COMPACT_WY_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/compact.cuh"

namespace sluice::cuda::stages {

using device::decay;
using tile::kTile, tile::lane, tile::lane_column, tile::lane_row, tile::load_left;
using tile::multiply_step, tile::WarpAccumulator, tile::put_part, tile::warp;

/// A warp's rows of A_inverse times diag(beta), and times diag(beta exp G), as left operands.
template <class Io>
__device__ __forceinline__ void load_inverse(uint32_t tile, const CompactTokens& s,
                                             uint32_t (&of_values)[4][4],
                                             uint32_t (&of_keys)[4][4]) {
  using P = tile::Packed<Io>;
  const int row0 = 16 * warp();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    load_left(of_values[step], tile, row0, 16 * step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + lane_row() + i % 2 * 8, j = 16 * step + lane_column() + i / 2 * 8;
      const float2 beta = *reinterpret_cast<const float2*>(s.beta + j),
                   G = *reinterpret_cast<const float2*>(s.G + j);
      const float x = P::first(of_values[step][i]) * beta.x,
                  y = P::second(of_values[step][i]) * beta.y;
      // Above the diagonal may be anything.
      const uint32_t keep = j < row ? ~0u : j == row ? 0xFFFFu : 0u;
      of_values[step][i] = P::pack(x, y) & keep;
      of_keys[step][i] = P::pack(x * decay(G.x), y * decay(G.y)) & keep;
    }
  }
}

/// A warp's 16 rows of 64 columns of a result, by way of its rows of a tile.
template <class Io>
__device__ __forceinline__ void store_result(uint8_t* tile, WarpAccumulator<8>& part,
                                             const CompactRows& rows, const CompactSpan& span,
                                             int head, int column) {
  put_part<Io>(ptx::shared_address(tile), 16 * warp(), 0, part);
  __syncwarp();
  int row = 16 * warp() + lane() / 8;
  const int piece = lane() % 8;
  auto* to = static_cast<uint16_t*>(rows.data) + compact_at(rows, span.row + row, head) + column +
             8 * piece;
#pragma unroll
  for (int i = 0; i < 4; ++i, row += 4, to += 4 * rows.token_stride) {
    if (row >= span.tokens) continue;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
        tile + tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece)));
  }
  __syncwarp();
}

/// A warp's rows of u and w. A_inverse is there, values and keys are on their way.
template <class Io>
__device__ __forceinline__ void multiply_inverse(const CompactParams& p, const CompactSpan& span,
                                                 int head, uint8_t* shared,
                                                 const CompactTokens& s) {
  const uint32_t tiles = ptx::shared_address(shared);
  uint32_t left[4][4], of_keys[4][4];
  load_inverse<Io>(tiles, s, left, of_keys);
  // PERF not unrolled: code that runs once is fetched from memory.
#pragma unroll 1
  for (uint32_t turn = 0; turn < 4; ++turn) {
    if (turn == 0) {
      ptx::wait_for_copies<1>();
      __syncthreads();
    }
    if (turn == 2) {
      ptx::wait_for_copies<0>();
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 16; ++i) left[i / 4][i % 4] = of_keys[i / 4][i % 4];
    }
    WarpAccumulator<8> part;
    part.clear();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      if (step > warp()) break;
      multiply_step<Io, false, 8>(part, left[step], tiles + (1 + turn) * kTile, 16 * step, 0);
    }
    store_result<Io>(shared, part, turn < 2 ? p.u : p.w, span, head,
                     static_cast<int>(turn % 2) * kColumns);
  }
}

template <class Io>
__global__ void __launch_bounds__(kBlockThreads, 5)
    compact_wy_kernel(const __grid_constant__ CompactParams p) {
  uint8_t* const shared = ptx::dynamic_memory();
  const uint32_t tiles = ptx::shared_address(shared);
  auto& s = *reinterpret_cast<CompactTokens*>(shared + 5 * kTileBytes);
  device::follow();
  const auto head = static_cast<int>(blockIdx.x);
  const CompactSpan span = compact_span(p.shape);
  if (span.tokens <= 0) return;
  request_rows<1>(tiles, p.matrix, span, head);
  ptx::close_copies();
  CompactRequest request;
  if (warp() == 0) request = request_numbers(p, span, head);
  request_rows<2>(tiles + kTile, p.values, span, head);
  ptx::close_copies();
  request_rows<2>(tiles + 3 * kTile, p.k, span, compact_key_head(p.shape, head));
  ptx::close_copies();
  if (warp() == 0) put_numbers(p, request, s);
  ptx::wait_for_copies<2>();
  __syncthreads();
  multiply_inverse<Io>(p, span, head, shared, s);
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_COMPACT_WY_CUH_
