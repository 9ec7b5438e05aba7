// Works on whole swizzled tiles in shared memory: norms of rows, tails, zeros.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SHARED_TILE_CUH_
#define SLUICE_CUDA_TILE_SHARED_TILE_CUH_

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/number.cuh"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::tile {

/// Inverse norms of 64 rows of a tile, two threads a row: sum over one half each. The result is
/// valid in both threads of the pair (2 row, 2 row + 1).
template <class C>
__device__ __forceinline__ float inverse_norm(const uint8_t* data, float eps) {
  constexpr uint32_t kPieces = C::kK / 16;  // of 16 bytes, in half a row
  const uint32_t thread = threadIdx.x & 127u;
  const uint32_t row = thread >> 1;
  float sum = 0;
#pragma unroll 2
  for (uint32_t i = 0; i < kPieces; ++i) {
    const uint32_t piece = (thread & 1u) * kPieces + i;
    const uint4 x = *reinterpret_cast<const uint4*>(data + (piece >> 3) * C::kHalfTileBytes +
                                                    swizzled_piece(row, piece & 7u));
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t word : words) {
      const float a = Packed<typename C::Io>::first(word);
      const float b = Packed<typename C::Io>::second(word);
      sum += a * a + b * b;
    }
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  return rsqrtf(sum + eps);
}

/// Zeroes rows [rows, 64) of a k tile: the state update multiplies them, and 0 * NaN is NaN.
template <class C>
__device__ __forceinline__ void zero_tail(uint8_t* tile, int rows) {
  constexpr uint32_t kPieces = C::kK / 8;  // of 16 bytes, in a row
  for (uint32_t i = threadIdx.x & 127u; i < static_cast<uint32_t>(64 - rows) * kPieces; i += 128) {
    const uint32_t row = static_cast<uint32_t>(rows) + i / kPieces, piece = i % kPieces;
    *reinterpret_cast<uint4*>(tile + (piece >> 3) * C::kHalfTileBytes + row * kRowBytes +
                              (piece & 7u) * 16) = make_uint4(0, 0, 0, 0);
  }
}

/// Zeroes 16-byte pieces of shared memory, by all threads.
template <class C>
__device__ __forceinline__ void zero(void* memory, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 16; i += C::kThreads) {
    static_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SHARED_TILE_CUH_
