// (I + A)^-1 for a strictly lower triangular 64x64 A, by the aux warpgroup.
//
// The diagonal 8x8 blocks are inverted by substitution in float32; blocks are then merged
// 8 -> 16 -> 32 -> 64 with fp16 operands and float32 accumulation. `blocks` holds A in fp16 below
// the diagonal blocks at the start and the inverse (as far as later merges need it) at the end.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_

#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// A swizzled 64x64 tile of 16-bit numbers, 1024-byte aligned, seen as 16x16 blocks that ldmatrix
/// and stmatrix move; the four 8x8 parts of a block come in the order of an mma A fragment.
struct BlockTile {
  uint32_t base;  ///< shared address
  uint32_t lane;  ///< this lane's address for block (0, 0)

  __device__ __forceinline__ explicit BlockTile(const void* tile)
      : base(ptx::shared_address(tile)),
        lane(base + tile::swizzled_piece(threadIdx.x & 15u, (threadIdx.x >> 4) & 1u)) {
    // WHY: otherwise all blocks' addresses are kept in registers across chunks, and spill.
    asm volatile("" : "+r"(lane));
  }
  /// Columns of blocks are bits 5 and 6 of the address, which the swizzle permutes by exclusive or.
  __device__ __forceinline__ uint32_t block(int row, int column) const {
    return (lane + static_cast<uint32_t>(row) * 2048) ^ (static_cast<uint32_t>(column) * 32);
  }
};

/// acc[2][4] += a * B, B the block (row, column) of `base`.
__device__ __forceinline__ void multiply_block(float (&acc)[2][4], const uint32_t (&a)[4],
                                               const BlockTile& tile, int row, int column) {
  uint32_t b[4];
  ptx::ldmatrix_x4_trans(b, tile.block(row, column));
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
__device__ __forceinline__ void store_tmat_block(const BlockTile& tmat, int row, int column,
                                                 const float (&acc)[2][4], const float* beta) {
  int lane = static_cast<int>(threadIdx.x & 31u);
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

/// Inverts this warp's two 8x8 diagonal blocks by substitution. Lanes c + 8 h and c + 8 h + 16 own
/// column c of block h; the lower half-warp stores it to `blocks` for the merges, the upper to
/// Tmat.
template <class Io>
__device__ __forceinline__ void substitute_diagonal(const float (&column_of)[16][20],
                                                    const BlockTile& blocks, const BlockTile& tmat,
                                                    int block, const float* beta) {
  int lane = static_cast<int>(threadIdx.x & 31u);
  // WHY: otherwise store addresses and columns of the unit matrix stay in registers, and spill.
  asm volatile("" : "+r"(lane));
  const int c = lane & 7, h = (lane >> 3) & 1;
  const float* a = &column_of[8 * h][8 * h];
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = i == c ? 1.0f : 0.0f;
#pragma unroll
  for (int j = 0; j < 7; ++j) {
#pragma unroll
    for (int i4 = (j + 1) / 4; i4 < 2; ++i4) {
      const float4 l = *reinterpret_cast<const float4*>(&a[j * 20 + i4 * 4]);
      if (i4 * 4 + 0 > j) x[i4 * 4 + 0] -= l.x * x[j];
      if (i4 * 4 + 1 > j) x[i4 * 4 + 1] -= l.y * x[j];
      if (i4 * 4 + 2 > j) x[i4 * 4 + 2] -= l.z * x[j];
      if (i4 * 4 + 3 > j) x[i4 * 4 + 3] -= l.w * x[j];
    }
  }
  const bool low = lane < 16;
  const float factor = low ? 1.0f : beta[block * 16 + 8 * h + c];
  // Row i of a swizzled tile is row 0 with i % 8 exclusive-ored onto the pieces.
  const uint32_t first = (low ? blocks.base : tmat.base) +
                         static_cast<uint32_t>(block * (2048 + 32) + h * (1024 + 16) + c * 2);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint16_t bits =
        low ? tile::Packed<__half>::bits(x[i]) : tile::Packed<Io>::bits(x[i] * factor);
    const uint32_t at = (first ^ static_cast<uint32_t>(i << 4)) + i * tile::kRowBytes;
    asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(at), "h"(bits) : "memory");
  }
}

/// Merge 8 -> 16 inside this warp's diagonal block: X_21 = -X_22 A_21 X_11, A_21 in `blocks`.
template <class Io>
__device__ __forceinline__ void merge_diagonal(const BlockTile& blocks, const BlockTile& tmat,
                                               int block, const float* beta) {
  const uint32_t lane = threadIdx.x & 31u, row = static_cast<uint32_t>(block) * 16,
                 piece = static_cast<uint32_t>(block) * 2;
  uint32_t x22, right[2];
  ptx::ldmatrix_x1(x22, blocks.base + tile::swizzled_piece(row + 8 + (lane & 7u), piece + 1));
  ptx::ldmatrix_x2_trans(
      right, blocks.base + tile::swizzled_piece(row + 8 - (lane & 8u) + (lane & 7u), piece));
  float left[4] = {}, x[4] = {};
  ptx::mma_f16_k8(left, x22, right[0]);
  ptx::mma_f16_k8(x, tile::Packed<__half>::pack(left[0], left[1]), right[1]);
  const uint32_t at = tile::swizzled_piece(row + 8 + (lane >> 2), piece) + (lane & 3u) * 4;
  const float2 b = *reinterpret_cast<const float2*>(&beta[row + (lane & 3u) * 2]);
  const uint32_t inverse = tile::Packed<__half>::pack(-x[0], -x[1]);
  const uint32_t scaled = tile::Packed<Io>::pack(-x[0] * b.x, -x[1] * b.y);
  __syncwarp();  // all lanes have read A_21, which is overwritten
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(blocks.base + at), "r"(inverse) : "memory");
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(tmat.base + at), "r"(scaled) : "memory");
}

/// Merge 16 -> 32: X_ba = -D_b^-1 A_ba D_a^-1 for the pair of blocks (a, b) = (b - 1, b), b odd.
template <class Io>
__device__ __forceinline__ void merge_pair(const BlockTile& blocks, const BlockTile& tmat, int b,
                                           const float* beta) {
  uint32_t a[4];
  float left[2][4] = {}, x[2][4] = {};
  ptx::ldmatrix_x4(a, blocks.block(b, b));
  multiply_block(left, a, blocks, b, b - 1);
  to_operand(a, left);
  multiply_block(x, a, blocks, b - 1, b - 1);
  store_tmat_block<Io>(tmat, b, b - 1, x, beta);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[n][i] = -x[n][i];
  }
  to_operand(a, x);
  __syncwarp();
  ptx::stmatrix_x4(blocks.block(b, b - 1), a);
}

/// Merge 32 -> 64: blocks (kRow, 0) and (kRow, 1), kRow in {2, 3}, of -X_B A_BA X_A.
template <class Io, int kRow>
__device__ __forceinline__ void merge_row(const BlockTile& blocks, const BlockTile& tmat,
                                          const float* beta) {
  uint32_t left[2][4];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float sum[2][4] = {};
#pragma unroll
    for (int p = 2; p <= kRow; ++p) {
      uint32_t a[4];
      ptx::ldmatrix_x4(a, blocks.block(kRow, p));
      multiply_block(sum, a, blocks, p, m);
    }
    to_operand(left[m], sum);
  }
  float x[2][4] = {};
  multiply_block(x, left[0], blocks, 0, 0);
  multiply_block(x, left[1], blocks, 1, 0);
  store_tmat_block<Io>(tmat, kRow, 0, x, beta);
  float y[2][4] = {};
  multiply_block(y, left[1], blocks, 1, 1);
  store_tmat_block<Io>(tmat, kRow, 1, y, beta);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INVERSE_CUH_
