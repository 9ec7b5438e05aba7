// Holds what the tensor-core kernels of chunk_backward share: products of tiles with either operand
// turned, sums over rows of results, pairs of numbers to rows of tokens.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_TILES_CUH_

#include "cuda/device/carried_state.cuh"
#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/params.h"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::backward {

using device::at, device::Chunk, device::decay, tile::kTile;
using device::kTileBytes, tile::WarpAccumulator;

inline constexpr int kWidths = 2;  ///< tiles of 64 columns that K has, and V

/// 64 tokens of kWidths x 64 columns of 16-bit numbers.
struct alignas(1024) RowTiles {
  uint8_t tile[kWidths][kTileBytes];
  __device__ __forceinline__ uint32_t at(int width) const {
    return ptx::shared_address(tile[0]) + static_cast<uint32_t>(width) * kTile;
  }
};

/// Requests a chunk's rows of one head, zeros past its end; closes no group. All threads of a CTA
/// of kThreads_.
template <int kThreads_>
__device__ __forceinline__ void request_rows(const RowTiles& to, const TokenRows& rows,
                                             const Chunk& chunk, int64_t head) {
  for (int w = 0; w < kWidths; ++w) {
    device::request_tile<kThreads_>(to.at(w), rows, chunk, head, 0, int64_t{64} * w);
  }
}

/// sum += left[rows row .. row + 15][64 terms] right[64 terms][columns from `column` on]; a turned
/// left is a tile [term][row], a turned right one [column][term].
template <class Io, bool kLeftTurned, bool kRightTurned, int kTiles>
__device__ __forceinline__ void product(WarpAccumulator<kTiles>& sum, uint32_t left, int row,
                                        uint32_t right, int column) {
#pragma unroll
  for (int term = 0; term < 64; term += 16) {
    uint32_t a[4];
    if constexpr (kLeftTurned) {
      tile::load_left_turned(a, left, row, term);
    } else {
      tile::load_left(a, left, row, term);
    }
    tile::multiply_step<Io, kRightTurned, kTiles>(sum, a, right, term, column);
  }
}

/// A pair of numbers of a tile.
template <class Io>
__device__ __forceinline__ float2 pair_at(const uint8_t* tile, int row, int column) {
  const uint32_t word = *reinterpret_cast<const uint32_t*>(
      tile + tile::swizzled_element(static_cast<uint32_t>(row), static_cast<uint32_t>(column)));
  return {tile::Packed<Io>::first(word), tile::Packed<Io>::second(word)};
}

/// Sums over the columns of a warp's part, one for each of its 16 rows, in one order.
struct LaneSums {
  float low = 0.0f, high = 0.0f;  ///< of rows lane_row() and lane_row() + 8
  /// Adds x a.x + y a.y of a pair in row 0 .. 15 of the part.
  __device__ __forceinline__ void add(int row, float x, float y, float2 a) {
    float& to = row >= 8 ? high : low;
    to = fmaf(x, a.x, fmaf(y, a.y, to));
  }
  /// to[row ..] = sums. Whole warps.
  __device__ __forceinline__ void put(float* to, int row) {
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      low += __shfl_xor_sync(~0u, low, step);
      high += __shfl_xor_sync(~0u, high, step);
    }
    if (tile::lane() % 4 != 0) return;
    to[row + tile::lane_row()] = low;
    to[row + tile::lane_row() + 8] = high;
  }
};

/// Sums of rows of a part times a tile's rows: to[row ..].
template <class Io>
__device__ __forceinline__ void put_row_products(WarpAccumulator<8>& part, const uint8_t* tile,
                                                 int row, float* to) {
  LaneSums sums;
  part.for_each_pair(
      [&](int r, int c, float x, float y) { sums.add(r, x, y, pair_at<Io>(tile, row + r, c)); });
  sums.put(to, row);
}

/// Rows of one chunk and head, element by element or by pairs.
struct OutputRows {
  TokenRows view;
  int64_t start;
  int tokens;
  bool pairs;  ///< 16-bit numbers that may be stored two by two

  __device__ __forceinline__ OutputRows(const TokenRows& rows, const Chunk& chunk, int64_t head)
      : view(rows), start(at(rows, chunk.batch, chunk.row, head)), tokens(chunk.tokens) {
    const auto address = reinterpret_cast<uintptr_t>(rows.data) + static_cast<uintptr_t>(2 * start);
    pairs = rows.number != Number::kFloat32 && address % 4 == 0 && rows.token_stride % 2 == 0;
  }
  __device__ __forceinline__ void store(int row, int column, float x, float y) const {
    if (row >= tokens) return;
    const int64_t element = start + row * view.token_stride + column;
    if (pairs) {
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(view.data) + element) =
          view.number == Number::kBfloat16 ? ptx::pack_bf16(x, y) : ptx::pack_f16(x, y);
      return;
    }
    device::store_number(view.data, element, view.number, x);
    device::store_number(view.data, element + 1, view.number, y);
  }
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_TILES_CUH_
