// (I + A)^-1 for a strictly lower triangular 64x64 A, by the aux warpgroup.
//
// The diagonal 16x16 blocks are inverted by substitution in float32; blocks are then merged
// 16 -> 32 -> 64 with fp16 operands and float32 accumulation. `blocks` holds A in fp16 below the
// diagonal blocks at the start and the inverse (as far as later merges need it) at the end.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_

#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// This lane's part in moving a 16x16 block by ldmatrix or stmatrix; the four 8x8 parts come in the
/// order of an mma A fragment.
__device__ __forceinline__ uint32_t block_lane_offset() {
  const uint32_t lane = threadIdx.x & 31u;
  return tile::swizzled_piece(lane & 15u, lane >> 4);
}

/// Shared address for the block (row, column) of a 1024-byte aligned tile. Columns of blocks are
/// bits 5 and 6 of the address, which the swizzle permutes by exclusive or.
__device__ __forceinline__ uint32_t block_address(uint32_t base, int row, int column) {
  return (base + static_cast<uint32_t>(row) * 2048 + block_lane_offset()) ^
         (static_cast<uint32_t>(column) * 32);
}

/// acc[2][4] += a * B, B the block (row, column) of `base`.
__device__ __forceinline__ void multiply_block(float (&acc)[2][4], const uint32_t (&a)[4],
                                               uint32_t base, int row, int column) {
  uint32_t b[4];
  ptx::ldmatrix_x4_trans(b, block_address(base, row, column));
  ptx::mma_f16(acc[0], a, b);
  ptx::mma_f16(acc[1], a, b + 2);
}

/// An accumulator as the A operand of the next product. NUM: rounds to fp16.
__device__ __forceinline__ void to_operand(uint32_t (&a)[4], const float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = tile::Packed<__half>::pack(acc[i >> 1][(i & 1) * 2], acc[i >> 1][(i & 1) * 2 + 1]);
  }
}

/// Stores -acc as block (row, column) of Tmat, times beta of the column.
template <class Io>
__device__ __forceinline__ void store_tmat_block(uint32_t tmat, int row, int column,
                                                 const float (&acc)[2][4], const float* beta) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 b =
        *reinterpret_cast<const float2*>(&beta[column * 16 + (i >> 1) * 8 + (lane & 3) * 2]);
    out[i] = tile::Packed<Io>::pack(-acc[i >> 1][(i & 1) * 2] * b.x,
                                    -acc[i >> 1][(i & 1) * 2 + 1] * b.y);
  }
  ptx::stmatrix_x4(block_address(tmat, row, column), out);
}

/// Inverts the diagonal block of this warp. Lanes c and c + 16 own column c; the lower half-warp
/// stores it to `blocks` for the merges, the upper one to Tmat.
template <class Io>
__device__ __forceinline__ void invert_diagonal(const float (&column_of)[16][20], uint32_t blocks,
                                                uint32_t tmat, int block, const float* beta) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int c = lane & 15;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = i == c ? 1.0f : 0.0f;
#pragma unroll
  for (int j = 0; j < 15; ++j) {
#pragma unroll
    for (int i4 = (j + 1) / 4; i4 < 4; ++i4) {
      const float4 a = *reinterpret_cast<const float4*>(&column_of[j][i4 * 4]);
      if (i4 * 4 + 0 > j) x[i4 * 4 + 0] -= a.x * x[j];
      if (i4 * 4 + 1 > j) x[i4 * 4 + 1] -= a.y * x[j];
      if (i4 * 4 + 2 > j) x[i4 * 4 + 2] -= a.z * x[j];
      if (i4 * 4 + 3 > j) x[i4 * 4 + 3] -= a.w * x[j];
    }
  }
  const bool low = lane < 16;
  const float factor = low ? 1.0f : beta[block * 16 + c];
  // Row i of a swizzled tile is row 0 with i % 8 exclusive-ored onto the pieces.
  const uint32_t first = (low ? blocks : tmat) + static_cast<uint32_t>(block) * (2048 + 32) +
                         static_cast<uint32_t>(c) * 2;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint16_t bits =
        low ? tile::Packed<__half>::bits(x[i]) : tile::Packed<Io>::bits(x[i] * factor);
    const uint32_t at = (first ^ (static_cast<uint32_t>(i & 7) << 4)) + i * tile::kRowBytes;
    asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(at), "h"(bits) : "memory");
  }
}

/// Merge 16 -> 32: X_ba = -D_b^-1 A_ba D_a^-1 for the pair (a, b) = (warp - 1, warp), warp odd.
template <class Io>
__device__ __forceinline__ void merge_pair(uint32_t blocks, uint32_t tmat, int warp,
                                           const float* beta) {
  uint32_t a[4];
  float left[2][4] = {}, x[2][4] = {};
  ptx::ldmatrix_x4(a, block_address(blocks, warp, warp));
  multiply_block(left, a, blocks, warp, warp - 1);
  to_operand(a, left);
  multiply_block(x, a, blocks, warp - 1, warp - 1);
  store_tmat_block<Io>(tmat, warp, warp - 1, x, beta);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[n][i] = -x[n][i];
  }
  to_operand(a, x);
  __syncwarp();
  ptx::stmatrix_x4(block_address(blocks, warp, warp - 1), a);
}

/// Merge 32 -> 64: block (row, column), row in {2, 3}, column in {0, 1}, of -X_B A_BA X_A.
template <class Io>
__device__ __forceinline__ void merge_halves(uint32_t blocks, uint32_t tmat, int row, int column,
                                             const float* beta) {
  float x[2][4] = {};
  for (int m = column; m < 2; ++m) {
    float left[2][4] = {};
    uint32_t a[4];
    for (int p = 2; p <= row; ++p) {
      ptx::ldmatrix_x4(a, block_address(blocks, row, p));
      multiply_block(left, a, blocks, p, m);
    }
    to_operand(a, left);
    multiply_block(x, a, blocks, m, column);
  }
  store_tmat_block<Io>(tmat, row, column, x, beta);
}

/// Tmat = (I + A)^-1 diag(beta), in io precision, blocks on and below the diagonal.
/// Called by all four aux warps; A's diagonal blocks are in `diagonal`, transposed, one per warp.
template <class Io>
__device__ __forceinline__ void solve_unit_lower(const float (&diagonal)[4][16][20],
                                                 uint32_t blocks, uint32_t tmat,
                                                 const float* beta) {
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
  invert_diagonal<Io>(diagonal[warp], blocks, tmat, warp, beta);
  // SYNC kInverse: aux warps wait for A's lower blocks and for the inverted diagonal blocks
  ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kInverse), 128);
  if (warp & 1) merge_pair<Io>(blocks, tmat, warp, beta);
  // SYNC kInverse: aux warps wait for the inverted 32x32 blocks
  ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kInverse), 128);
  merge_halves<Io>(blocks, tmat, 2 + (warp >> 1), warp & 1, beta);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
