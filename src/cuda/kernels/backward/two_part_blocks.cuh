// Multiplies 16 x 16 blocks of numbers in two parts of bfloat16, by warps (mma.m16n8k16).
//
// Numbers   NUM: high is a number's first 8 bits, low the next 8, and float32's range; of the four
//           products of parts low times low is left out: 2^-16 of a term
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_TWO_PART_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_TWO_PART_BLOCKS_CUH_

#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::backward {

using tile::BlockTile, tile::kTile;

/// A lane's numbers of a 16 x 16 block: tiles of 8 columns.
using BlockNumbers = float[2][4];

/// A block as a left operand, in two parts.
struct TwoPartBlock {
  uint32_t high[4], low[4];

  __device__ __forceinline__ TwoPartBlock() {}
  __device__ __forceinline__ explicit TwoPartBlock(const BlockNumbers& x) {
    using Pack = tile::Packed<__nv_bfloat16>;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float first = x[i / 2][i % 2 * 2], second = x[i / 2][i % 2 * 2 + 1];
      high[i] = Pack::pack(first, second);
      low[i] = Pack::pack(first - Pack::first(high[i]), second - Pack::second(high[i]));
    }
  }
};

/// Blocks in two parts, which two tiles have: below the diagonal those of -A, on it (I + A)^-1, above
/// it B turned block by block.
struct TwoPartTiles {
  BlockTile high;

  __device__ __forceinline__ void put(int row, int column, const TwoPartBlock& x) const {
    ptx::stmatrix_x4(high.block(row, column), x.high);
    ptx::stmatrix_x4(high.block(row, column) + kTile, x.low);
  }
  __device__ __forceinline__ TwoPartBlock left(int row, int column) const {
    TwoPartBlock x;
    ptx::ldmatrix_x4(x.high, high.block(row, column));
    ptx::ldmatrix_x4(x.low, high.block(row, column) + kTile);
    return x;
  }
  /// sum += left times a block.
  __device__ __forceinline__ void multiply(BlockNumbers& sum, const TwoPartBlock& left, int row,
                                           int column) const {
    uint32_t b[4], rest[4];
    ptx::ldmatrix_x4_trans(b, high.block(row, column));
    ptx::ldmatrix_x4_trans(rest, high.block(row, column) + kTile);
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::mma_bf16(sum[j], left.high, rest + 2 * j);
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::mma_bf16(sum[j], left.low, b + 2 * j);
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::mma_bf16(sum[j], left.high, b + 2 * j);
  }
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_TWO_PART_BLOCKS_CUH_
