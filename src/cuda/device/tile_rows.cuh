// Copies rows of tokens between memory and swizzled tiles, by warps.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_TILE_ROWS_CUH_
#define SLUICE_CUDA_DEVICE_TILE_ROWS_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::device {

/// Requests rows row0 .. row0 + 63 and columns column .. column + 63 of a chunk; zeros past its
/// end. All threads of a CTA of kThreads.
template <int kThreads>
__device__ __forceinline__ void request_tile(uint32_t tile, const TokenRows& rows,
                                             const Chunk& chunk, int64_t head, int row0,
                                             int64_t column) {
  const auto* data =
      static_cast<const uint16_t*>(rows.data) + at(rows, chunk.batch, chunk.row, head) + column;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 512; i += kThreads) {
    const int row = i / 8, piece = i % 8;
    const bool inside = row0 + row < chunk.tokens;
    const auto* from = data + (inside ? row0 + row : 0) * rows.token_stride + 8 * piece;
    ptx::copy_async_16(
        tile + tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece)), from,
        inside);
  }
}

/// Requests rows k0 .. k0 + 63 and columns .. + 63 of a dense matrix [K][V] of 16-bit numbers.
template <int kThreads>
__device__ __forceinline__ void request_matrix(uint32_t tile, const uint16_t* first, int64_t V,
                                               bool exists = true) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 512; i += kThreads) {
    const int row = i / 8, piece = i % 8;
    ptx::copy_async_16(
        tile + tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece)),
        first + row * V + 8 * piece, exists);
  }
}

/// Copies 16 rows of kPieces 16-byte pieces from a tile to the chunk's rows from row0 on and
/// columns from `to_column` on, those that exist. One warp, which sees what it has put there.
template <int kPieces>
__device__ __forceinline__ void store_rows(const uint8_t* tile, int row, int column,
                                           const TokenRows& rows, const Chunk& chunk, int64_t head,
                                           int row0, int64_t to_column) {
  auto* data =
      static_cast<uint16_t*>(rows.data) + at(rows, chunk.batch, chunk.row, head) + to_column;
  __syncwarp();
#pragma unroll
  for (int i = tile::lane(); i < 16 * kPieces; i += 32) {
    const int r = i / kPieces, piece = i % kPieces;
    if (row0 + r >= chunk.tokens) continue;
    const uint32_t from = tile::swizzled_piece(static_cast<uint32_t>(row + r),
                                               static_cast<uint32_t>(column / 8 + piece));
    *reinterpret_cast<uint4*>(data + (row0 + r) * rows.token_stride + 8 * piece) =
        *reinterpret_cast<const uint4*>(tile + from);
  }
  __syncwarp();
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_TILE_ROWS_CUH_
