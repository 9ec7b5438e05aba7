// Inverts I + A for a strictly lower triangular 64x64 A, by one warp: what the two finish warps do.
//
// The diagonal 8x8 blocks are inverted by substitution in float32; blocks are then merged,
// 8 -> 16 -> 32 -> 64, with fp16 operands and float32 accumulation. `blocks` holds A in fp16 below
// the diagonal blocks at the start and the inverse (as far as later merges need it) at the end.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_

#include <type_traits>

#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// Whether A is kept as a sum of two fp16 numbers, the second in the mirrored block above the
/// diagonal. NUM with fp16 inputs the rounding of A to fp16 would be the largest of all: 2 times
/// the error of an exact A on correlated keys.
template <class Io>
inline constexpr bool kTwoPartA = std::is_same_v<Io, __half>;

/// What rounding x to fp16 leaves.
__device__ __forceinline__ float fp16_rest(float x) { return x - __half2float(__float2half_rn(x)); }

using tile::BlockTile;

/// acc += a * B for a 16x16 block B, as B operands.
__device__ __forceinline__ void multiply(float (&acc)[2][4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[4]) {
  ptx::mma_f16(acc[0], a, b);
  ptx::mma_f16(acc[1], a, b + 2);
}

/// acc += a * B, B the block (row, column) of `tile`.
__device__ __forceinline__ void multiply_block(float (&acc)[2][4], const uint32_t (&a)[4],
                                               const BlockTile& tile, int row, int column) {
  uint32_t b[4];
  ptx::ldmatrix_x4_trans(b, tile.block(row, column));
  multiply(acc, a, b);
}

/// acc += a * A_rc, the block (row, column) of A below the diagonal.
template <class Io>
__device__ __forceinline__ void multiply_a(float (&acc)[2][4], const uint32_t (&a)[4],
                                           const BlockTile& blocks, int row, int column) {
  multiply_block(acc, a, blocks, row, column);
  if constexpr (kTwoPartA<Io>) multiply_block(acc, a, blocks, column, row);
}

/// An accumulator as the A operand of the next product. NUM: rounds to fp16.
__device__ __forceinline__ void to_operand(uint32_t (&a)[4], const float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = tile::Packed<__half>::pack(acc[i >> 1][(i & 1) * 2], acc[i >> 1][(i & 1) * 2 + 1]);
  }
}

/// -acc as an operand. NUM: rounds to fp16.
__device__ __forceinline__ void to_negative_operand(uint32_t (&a)[4], const float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = tile::Packed<__half>::pack(-acc[i >> 1][(i & 1) * 2], -acc[i >> 1][(i & 1) * 2 + 1]);
  }
}

/// Stores -acc as block (row, column) of Tmat, times beta of the column.
template <class Io>
__device__ __forceinline__ void store_tmat_block(const BlockTile& tmat, int row, int column,
                                                 const float (&acc)[2][4], const float* beta) {
  int lane = tile::lane();
  asm volatile("" : "+r"(lane));  // WHY: as in BlockTile
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 b =
        *reinterpret_cast<const float2*>(&beta[column * 16 + (i >> 1) * 8 + (lane & 3) * 2]);
    out[i] = tile::Packed<Io>::pack(-acc[i >> 1][(i & 1) * 2] * b.x,
                                    -acc[i >> 1][(i & 1) * 2 + 1] * b.y);
  }
  ptx::stmatrix_x4(tmat.block(row, column), out);
}

/// One step of substitution for a row of X = L^-1, from X L = I: x_j -= x_i L_ij for j < i.
template <int i>
__device__ __forceinline__ void substitute_step(float (&x)[8], const DiagonalBlock& a) {
#pragma unroll
  for (int j = 0; j < i; j += 4) {
    const float4 l = *reinterpret_cast<const float4*>(&a.row[i][j]);
    x[j] -= x[i] * l.x;
    if (j + 1 < i) x[j + 1] -= x[i] * l.y;
    if (j + 2 < i) x[j + 2] -= x[i] * l.z;
    if (j + 3 < i) x[j + 3] -= x[i] * l.w;
  }
}

/// Stores row `token` of an inverted 8x8 block: to `blocks`, and times beta of the column to Tmat.
template <class Io>
__device__ __forceinline__ void store_inverted_row(const float (&x)[8], const BlockTile& blocks,
                                                   const BlockTile& tmat, uint32_t token,
                                                   const float* beta) {
  const uint32_t at = tile::swizzled_piece(token, token / 8);
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = tile::Packed<__half>::pack(x[2 * i], x[2 * i + 1]);
  ptx::store_shared_16(blocks.base + at, out);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 b = *reinterpret_cast<const float2*>(&beta[(token & ~7u) + 2 * i]);
    out[i] = tile::Packed<Io>::pack(x[2 * i] * b.x, x[2 * i + 1] * b.y);
  }
  ptx::store_shared_16(tmat.base + at, out);
}

/// Inverts the eight 8x8 diagonal blocks by substitution: lane l owns row l % 8 of blocks l / 8 and
/// l / 8 + 4. PERF both at once: two chains hide each other's latency.
template <class Io>
__device__ __forceinline__ void substitute_diagonal(const DiagonalBlock (&diagonal)[8],
                                                    const BlockTile& blocks, const BlockTile& tmat,
                                                    const float* beta) {
  int lane = tile::lane();
  asm volatile("" : "+r"(lane));  // WHY: as in BlockTile
  const int row = lane & 7;
  const DiagonalBlock& low = diagonal[lane >> 3];
  const DiagonalBlock& high = diagonal[(lane >> 3) + 4];
  float x[8], y[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = y[j] = j == row ? 1.0f : 0.0f;
  substitute_step<7>(x, low), substitute_step<7>(y, high);
  substitute_step<6>(x, low), substitute_step<6>(y, high);
  substitute_step<5>(x, low), substitute_step<5>(y, high);
  substitute_step<4>(x, low), substitute_step<4>(y, high);
  substitute_step<3>(x, low), substitute_step<3>(y, high);
  substitute_step<2>(x, low), substitute_step<2>(y, high);
  substitute_step<1>(x, low), substitute_step<1>(y, high);
  store_inverted_row<Io>(x, blocks, tmat, static_cast<uint32_t>(lane), beta);
  store_inverted_row<Io>(y, blocks, tmat, static_cast<uint32_t>(lane) + 32, beta);
}

/// Merge 8 -> 16 in all four diagonal blocks: X_21 = -X_22 A_21 X_11, A_21 in `blocks`.
template <class Io>
__device__ __forceinline__ void merge_diagonals(const BlockTile& blocks, const BlockTile& tmat,
                                                const float* beta) {
  int lane = tile::lane();
  asm volatile("" : "+r"(lane));  // WHY: as in BlockTile
  // Lane l names row l % 8 of an 8x8 part of block l / 8.
  const auto block = static_cast<uint32_t>(lane >> 3), row = static_cast<uint32_t>(lane & 7);
  const uint32_t upper = blocks.base + tile::swizzled_piece(block * 16 + row, block * 2);
  uint32_t x22[4], a21[4], x11[4];
  ptx::ldmatrix_x4(x22, (upper + 8 * tile::kRowBytes) ^ 16);
  ptx::ldmatrix_x4_trans(a21, upper + 8 * tile::kRowBytes);
  ptx::ldmatrix_x4_trans(x11, upper);
  float left[4][4] = {}, x[4][4] = {};
#pragma unroll
  for (int b = 0; b < 4; ++b) ptx::mma_f16_k8(left[b], x22[b], a21[b]);
  if constexpr (kTwoPartA<Io>) {
    ptx::ldmatrix_x4_trans(a21, upper ^ 16);
#pragma unroll
    for (int b = 0; b < 4; ++b) ptx::mma_f16_k8(left[b], x22[b], a21[b]);
  }
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    ptx::mma_f16_k8(x[b], tile::Packed<__half>::pack(left[b][0], left[b][1]), x11[b]);
  }
  __syncwarp();  // all lanes have read A_21, which is overwritten
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const uint32_t at = tile::swizzled_piece(static_cast<uint32_t>(b * 16 + 8 + (lane >> 2)),
                                             static_cast<uint32_t>(b * 2)) +
                        static_cast<uint32_t>(lane & 3) * 4;
    const float2 f = *reinterpret_cast<const float2*>(&beta[b * 16 + (lane & 3) * 2]);
    ptx::store_shared_4(blocks.base + at, tile::Packed<__half>::pack(-x[b][0], -x[b][1]));
    ptx::store_shared_4(tmat.base + at, tile::Packed<Io>::pack(-x[b][0] * f.x, -x[b][1] * f.y));
    // The inverse has no part above the diagonal, where the rest of A_21 was.
    if constexpr (kTwoPartA<Io>)
      ptx::store_shared_4((blocks.base + at - 8 * tile::kRowBytes) ^ 16, 0);
  }
}

/// Merge 16 -> 32 in both diagonal blocks: X_ba = -D_b^-1 A_ba D_a^-1 for the pairs of blocks
/// (a, b) = (0, 1) and (2, 3).
template <class Io>
__device__ __forceinline__ void merge_pairs(const BlockTile& blocks, const BlockTile& tmat,
                                            const float* beta) {
  uint32_t a[2][4];
  float left[2][2][4] = {}, x[2][2][4] = {};
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    ptx::ldmatrix_x4(a[pair], blocks.block(2 * pair + 1, 2 * pair + 1));
    multiply_a<Io>(left[pair], a[pair], blocks, 2 * pair + 1, 2 * pair);
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    to_operand(a[pair], left[pair]);
    multiply_block(x[pair], a[pair], blocks, 2 * pair, 2 * pair);
  }
  __syncwarp();  // all lanes have read A_ba, which is overwritten
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    to_negative_operand(a[pair], x[pair]);
    ptx::stmatrix_x4(blocks.block(2 * pair + 1, 2 * pair), a[pair]);
    store_tmat_block<Io>(tmat, 2 * pair + 1, 2 * pair, x[pair], beta);
  }
}

/// Merge 32 -> 64: -X_B A_BA X_A, blocks (2, 0), (2, 1), (3, 0), (3, 1).
template <class Io>
__device__ __forceinline__ void merge_halves(const BlockTile& blocks, const BlockTile& tmat,
                                             const float* beta) {
  uint32_t left[2][2][4];
  {
    uint32_t x22[4], x32[4], x33[4];
    ptx::ldmatrix_x4(x22, blocks.block(2, 2));
    ptx::ldmatrix_x4(x32, blocks.block(3, 2));
    ptx::ldmatrix_x4(x33, blocks.block(3, 3));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float sum[2][2][4] = {};
      multiply_a<Io>(sum[0], x22, blocks, 2, n);
      multiply_a<Io>(sum[1], x32, blocks, 2, n);
      multiply_a<Io>(sum[1], x33, blocks, 3, n);
      to_operand(left[0][n], sum[0]);
      to_operand(left[1][n], sum[1]);
    }
  }
  float x[2][2][4] = {};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(b, blocks.block(n, 0));
    multiply(x[0], left[0][n], b);
    multiply(x[1], left[1][n], b);
  }
  store_tmat_block<Io>(tmat, 2, 0, x[0], beta);
  store_tmat_block<Io>(tmat, 3, 0, x[1], beta);
  float y[2][2][4] = {};
  uint32_t b[4];
  ptx::ldmatrix_x4_trans(b, blocks.block(1, 1));
  multiply(y[0], left[0][1], b);
  multiply(y[1], left[1][1], b);
  store_tmat_block<Io>(tmat, 2, 1, y[0], beta);
  store_tmat_block<Io>(tmat, 3, 1, y[1], beta);
}

/// Tmat of the chunk with this number since the start of the kernel, from A.
template <class C>
__device__ __forceinline__ void invert_chunk(SharedMemoryPlan<C>& s, uint32_t chunk) {
  static_assert(C::kGateSlots == 4 && C::kTmatSlots == 2);
  using Io = typename C::Io;
  const uint32_t pair = chunk & 1u, round = (chunk >> 1) & 1u, gate = chunk & 3u;
  // SYNC gate_ring.full, block_ring.full: the finish warp waits for beta and A
  tile::wait_phase(&s.gate_ring.full[gate], (chunk >> 2) & 1u);
  tile::wait_phase(&s.block_ring.full[pair], round);
  // SYNC tmat_ring.empty: the state warpgroups are done with the slot's previous Tmat
  tile::wait_phase(&s.tmat_ring.empty[pair], round ^ 1u);
  const float* beta = s.gates[gate].beta;
  const BlockTile blocks(s.blocks[pair].bytes), tmat(s.Tmat[pair].bytes);
  substitute_diagonal<Io>(s.diagonal[pair], blocks, tmat, beta);
  __syncwarp();
  merge_diagonals<Io>(blocks, tmat, beta);
  __syncwarp();
  merge_pairs<Io>(blocks, tmat, beta);
  __syncwarp();
  merge_halves<Io>(blocks, tmat, beta);
  ptx::fence_proxy_async();
  __syncwarp();
  if (tile::is_first_lane()) {
    // SYNC tmat_ring.full: Tmat is written
    ptx::mbarrier_arrive(&s.tmat_ring.full[pair]);
    // SYNC block_ring.empty, gate_ring.empty: both have been read
    ptx::mbarrier_arrive(&s.block_ring.empty[pair]);
    ptx::mbarrier_arrive(&s.gate_ring.empty[gate]);
  }
}

/// Finish warp `parity`: every second chunk.
template <class C>
__device__ __forceinline__ void finish_role(SharedMemoryPlan<C>& s, uint32_t parity) {
  device::WorkReader work(s.work_ring, s.work);
  uint32_t chunk = 0;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    for (int left = item.chunks(); left > 0; --left, ++chunk) {
      if ((chunk & 1u) == parity) invert_chunk<C>(s, chunk);
    }
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
