// Holds what the tensor-core kernels of chunk_backward share: numbers of a chunk's tokens, and rows
// of results, to memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_

#include <type_traits>

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/backward/tile_config.h"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::backward {

using device::at, device::Chunk, device::decay;

/// Value head `turn` of a key head.
__device__ __forceinline__ int32_t value_head(const StageParams& p, int32_t key, int32_t turn) {
  const auto H = static_cast<int32_t>(p.H), r = static_cast<int32_t>(p.r);
  return p.head_map_cyclic ? key + turn * H : key * r + turn;
}

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

/// dv = diag(beta) Y as chunks hand it on. A strength whose products with Y 16 bits could lose is
/// brought near 1 by a power of two, which the gradients undo: they need Y for gradients of beta.
template <class Io>
struct ValueStrength {
  float stored;  ///< times Y: what is stored, never zero
  float undo;    ///< times what is stored: dv; a power of two, or zero

  __device__ __forceinline__ explicit ValueStrength(float beta) : stored(beta), undo(1.0f) {
    constexpr float kLeast = std::is_same_v<Io, __nv_bfloat16> ? 0x1p-60f : 0x1p-6f;
    if (!(fabsf(beta) < kLeast)) return;
    const uint32_t bits = __float_as_uint(beta), exponent = bits >> 23 & 0xFFu;
    stored = exponent == 0 ? 1.0f : __uint_as_float((bits & 0x807FFFFFu) | 0x3F000000u);
    undo = exponent == 0 ? 0.0f : __uint_as_float((exponent + 1) << 23);
  }
};

/// Copies the first `rows` rows of 64 columns of a tile to rows of 16-bit numbers that are aligned
/// to 16 bytes, from element `start` on. All of kThreads threads in a row.
template <int kThreads>
__device__ __forceinline__ void copy_rows(const uint8_t* block, const TokenRows& to, int64_t start,
                                          int rows) {
  auto* const out = static_cast<uint16_t*>(to.data) + start;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kThreads; i < 8 * rows; i += kThreads) {
    const auto row = static_cast<uint32_t>(i / 8), piece = static_cast<uint32_t>(i % 8);
    *reinterpret_cast<uint4*>(out + row * to.token_stride + 8 * piece) =
        *reinterpret_cast<const uint4*>(block + tile::swizzled_piece(row, piece));
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_TILE_NUMBERS_CUH_
