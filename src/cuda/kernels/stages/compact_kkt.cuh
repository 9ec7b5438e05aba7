// Runs scaled_dot_kkt and cumsum_kkt of 128 columns of 16-bit keys, chunks of 64 tokens.
//
// Math      A_ij = beta_i exp(G_i - G_j) (k_i . k_j), i > j: in the order of kkt.cuh
// Roles     a CTA of 128 threads has one (chunk, head), a warp 16 rows of A
// Pipeline  request numbers, keys -> G -> 16 columns of A at a time, those up to the diagonal
// Memory    17 KB: the keys
// Floor     docs/kernels/stages.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_COMPACT_KKT_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_COMPACT_KKT_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/compact.cuh"

namespace sluice::cuda::stages {

using device::decay;
using tile::kTile, tile::lane, tile::lane_column, tile::lane_row, tile::load_left;
using tile::multiply_step, tile::WarpAccumulator, tile::warp;

/// G and beta of a lane's rows i and i + 8.
struct RowNumbers {
  float G[2], beta[2];
};

/// Decays, beta and the mask on a lane's pairs of rows i and i + 8, columns j.. and j + 8...
__device__ __forceinline__ void scale_scores(WarpAccumulator<2>& part, const CompactTokens& s,
                                             const RowNumbers& rows, int i, int j) {
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const float2 G = *reinterpret_cast<const float2*>(s.G + j + 8 * tile);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int below = i + n / 2 * 8 - (j + 8 * tile + n % 2);
      // WHY a choice: above the diagonal the exponential may be infinite. PERF after it: a branch
      // for each number otherwise.
      const float x =
          rows.beta[n / 2] * decay(rows.G[n / 2] - (n % 2 == 0 ? G.x : G.y)) * part.x[tile][n];
      part.x[tile][n] = below > 0 ? x : 0.0f;
    }
  }
}

/// Of two neighbouring lanes, which have two numbers of either tile of 8 columns each: four numbers
/// of the even lane's first tile for it, four of the second for the other.
__device__ __forceinline__ float4 join_pairs(float2 first, float2 second) {
  const bool odd = lane() % 2 != 0;
  const float2 sent = odd ? first : second;
  const float2 got = {__shfl_xor_sync(~0u, sent.x, 1), __shfl_xor_sync(~0u, sent.y, 1)};
  return odd ? float4{got.x, got.y, second.x, second.y} : float4{first.x, first.y, got.x, got.y};
}

template <class Io>
__device__ __forceinline__ void store_scores(const CompactParams& p, uint64_t element, float4 x) {
  if (p.is_float) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.matrix.data) + element) = x;
  } else {
    using P = tile::Packed<Io>;
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.matrix.data) + element) = {
        P::pack(x.x, x.y), P::pack(x.z, x.w)};
  }
}

/// A warp's rows of A.
template <class Io>
__device__ __forceinline__ void multiply_keys(const CompactParams& p, const CompactSpan& span,
                                              int head, uint32_t tiles, const CompactTokens& s) {
  const int row0 = 16 * warp(), i = row0 + lane_row();
  uint32_t a[8][4];
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    load_left(a[step], tiles + static_cast<uint32_t>(step / 4) * kTile, row0, step % 4 * 16);
  }
  const RowNumbers rows{{s.G[i], s.G[i + 8]}, {s.beta[i], s.beta[i + 8]}};
  uint64_t element = compact_at(p.matrix, span.row + i, head) +
                     static_cast<uint32_t>(lane() % 2 * 8 + lane() % 4 / 2 * 4);
  const uint32_t below = 8 * p.matrix.token_stride;
  // PERF not unrolled: code that runs once is fetched from memory.
#pragma unroll 1
  for (int column = 0; column < kCompactChunk; column += 16, element += 16) {
    WarpAccumulator<2> part;
    part.clear();
    if (column <= row0) {
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        multiply_step<Io, true, 2>(part, a[step], tiles + static_cast<uint32_t>(step / 4) * kTile,
                                   step % 4 * 16, column);
      }
      scale_scores(part, s, rows, i, column + lane_column());
    }
    const float4 upper = join_pairs({part.x[0][0], part.x[0][1]}, {part.x[1][0], part.x[1][1]}),
                 lower = join_pairs({part.x[0][2], part.x[0][3]}, {part.x[1][2], part.x[1][3]});
    if (i < span.tokens) store_scores<Io>(p, element, upper);
    if (i + 8 < span.tokens) store_scores<Io>(p, element + below, lower);
  }
}

template <class Io>
__global__ void __launch_bounds__(kBlockThreads, 8)
    compact_kkt_kernel(const __grid_constant__ CompactParams p) {
  uint8_t* const shared = ptx::dynamic_memory();
  const uint32_t tiles = ptx::shared_address(shared);
  auto& s = *reinterpret_cast<CompactTokens*>(shared + 2 * kTileBytes);
  device::follow();
  const auto head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const CompactSpan span = compact_span(p.shape);
  if (span.tokens <= 0) return;
  CompactRequest request;
  if (warp() == 0) request = request_numbers(p, span, head);
  request_rows<2>(tiles, p.k, span, compact_key_head(p.shape, head));
  ptx::close_copies();
  if (warp() == 0) put_numbers(p, request, s);
  ptx::wait_for_copies<0>();
  __syncthreads();
  if (p.sums.data != nullptr && thread < span.tokens) {
    static_cast<float*>(p.sums.data)[compact_at(p.sums, span.row + thread, head)] = s.G[thread];
  }
  multiply_keys<Io>(p, span, head, tiles, s);
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_COMPACT_KKT_CUH_
