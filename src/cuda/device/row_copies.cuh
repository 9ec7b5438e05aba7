// Copies a thread's part of every 64 tokens of a sequence between memory and a tile: addresses are
// found once, and a step of 64 tokens is an addition.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_ROW_COPIES_CUH_
#define SLUICE_CUDA_DEVICE_ROW_COPIES_CUH_

#include "cuda/device/stage_params.h"
#include "cuda/device/tile_rows.cuh"

namespace sluice::cuda::device {

/// 16-byte pieces of 64 rows of kColumns numbers, of a CTA of kChainThreads: a thread has piece
/// t % kPieces of every kRowsApart-th row.
template <int kColumns>
struct PieceMap {
  static constexpr int kPieces = kColumns / 8, kRowsApart = kChainThreads / kPieces;
  static constexpr int kEach = 64 / kRowsApart;
  static_assert(kRowsApart % 8 == 0, "the swizzle is that of row % 8");
  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kPieces; }
  __device__ __forceinline__ static int piece() { return static_cast<int>(threadIdx.x) % kPieces; }
  /// Of the thread's first piece in a tile; the i-th is i * kTileStep further on.
  __device__ __forceinline__ static uint32_t place() {
    return tile::swizzled_piece(static_cast<uint32_t>(row()), static_cast<uint32_t>(piece()));
  }
  static constexpr uint32_t kTileStep = kRowsApart * tile::kRowBytes;
};

/// Token rows of one head, from a first token on.
template <int kColumns>
class RowCopies {
 public:
  using Map = PieceMap<kColumns>;
  __device__ __forceinline__ RowCopies(const TokenRows& rows, const Chunk& sequence, int64_t head,
                                       int64_t column)
      : rows_(&rows),
        place_(static_cast<uint16_t*>(rows.data) + at(rows, sequence.batch, sequence.row, head) +
               column + Map::row() * rows.token_stride + 8 * Map::piece()) {}

  /// Requests 64 tokens, of which `left` exist, and kTiles tiles of 64 columns next to each other;
  /// zeros past the end.
  template <int kTiles = 1>
  __device__ __forceinline__ void request(uint32_t tile, int left) const {
#pragma unroll
    for (int i = 0; i < Map::kEach; ++i) {
      const uint16_t* const from = place_ + i * Map::kRowsApart * rows_->token_stride;
      const bool inside = Map::row() + i * Map::kRowsApart < left;
#pragma unroll
      for (int b = 0; b < kTiles; ++b) {
        ptx::copy_async_16(tile + static_cast<uint32_t>(b) * tile::kTile + Map::place() +
                               static_cast<uint32_t>(i) * Map::kTileStep,
                           from + b * kColumns, inside);
      }
    }
  }
  /// Stores a tile's rows, those that exist of 64.
  __device__ __forceinline__ void store(const uint8_t* tile, int left) const {
#pragma unroll
    for (int i = 0; i < Map::kEach; ++i) {
      if (Map::row() + i * Map::kRowsApart >= left) continue;
      *reinterpret_cast<uint4*>(place_ + i * Map::kRowsApart * rows_->token_stride) =
          *reinterpret_cast<const uint4*>(tile + Map::place() +
                                          static_cast<uint32_t>(i) * Map::kTileStep);
    }
  }
  __device__ __forceinline__ void advance() { place_ += 64 * rows_->token_stride; }

 private:
  const TokenRows* rows_;  ///< WHY not its stride: that is in constant memory anyway
  uint16_t* place_;        ///< of the thread's first piece of the next 64 tokens
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_ROW_COPIES_CUH_
