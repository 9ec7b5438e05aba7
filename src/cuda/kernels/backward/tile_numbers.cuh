// Holds what the tensor-core kernels of chunk_backward share: numbers of a chunk's tokens, and rows
// of results, to memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/backward/tile_config.h"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::backward {

using device::at, device::Chunk, device::decay;

/// Sums of gates and write strengths of tokens lane and lane + 32; past the end they are the last
/// one's.
struct LaneNumbers {
  float G[2], beta[2];
  /// G of the chunk's last token. Whole warps.
  __device__ __forceinline__ float last() const { return __shfl_sync(~0u, G[1], 31); }
};
__device__ __forceinline__ LaneNumbers request_numbers(const StageParams& p, const Chunk& chunk,
                                                       int64_t head) {
  LaneNumbers numbers;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = min(tile::lane() + 32 * i, chunk.tokens - 1);
    numbers.G[i] =
        p.g_cumsum.data == nullptr ? 0.0f : device::token_number(p.g_cumsum, chunk, head, token);
    numbers.beta[i] =
        p.beta.data == nullptr ? 1.0f : device::token_number(p.beta, chunk, head, token);
  }
  return numbers;
}

/// Copies the first `rows` rows of 64 columns of a tile to rows of 16-bit numbers that are aligned
/// to 16 bytes, from element `start` on. All threads of a warpgroup.
__device__ __forceinline__ void copy_rows(const uint8_t* block, const TokenRows& to, int64_t start,
                                          int rows) {
  auto* const out = static_cast<uint16_t*>(to.data) + start;
#pragma unroll 1
  for (int i = tile::thread_of_group(); i < 8 * rows; i += 128) {
    const auto row = static_cast<uint32_t>(i / 8), piece = static_cast<uint32_t>(i % 8);
    *reinterpret_cast<uint4*>(out + row * to.token_stride + 8 * piece) =
        *reinterpret_cast<const uint4*>(block + tile::swizzled_piece(row, piece));
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_
