// Whole tiles and raw products in the hands of the aux warpgroup: their product, norms, tails.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TILES_CUH_

#include "cuda/kernels/chunk_forward/work.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// acc = X Y^T for two [64 tokens][K] tiles.
template <class C>
__device__ __forceinline__ void issue_product(float (&acc)[32], const uint8_t* x,
                                              const uint8_t* y) {
  const uint64_t dx = tile::k_major(ptx::shared_address(x));
  const uint64_t dy = tile::k_major(ptx::shared_address(y));
#pragma unroll
  for (uint32_t step = 0; step < C::kK / 16; ++step) {
    const uint32_t at = (step / 4) * C::kHalfTileBytes + (step % 4) * 32;
    ptx::wgmma_ss_n64<0>(typename C::Io{}, acc, tile::advance(dx, at), tile::advance(dy, at),
                         step != 0);
  }
}

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
                                                    tile::swizzled_piece(row, piece & 7u));
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t word : words) {
      const float a = tile::Packed<typename C::Io>::first(word);
      const float b = tile::Packed<typename C::Io>::second(word);
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
    *reinterpret_cast<uint4*>(tile + (piece >> 3) * C::kHalfTileBytes + row * tile::kRowBytes +
                              (piece & 7u) * 16) = make_uint4(0, 0, 0, 0);
  }
}

/// Zeroes rows and columns at or past `rows` of a raw product: they may come from another sequence.
__device__ __forceinline__ void mask_tail(float (&x)[32], int rows) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int row = static_cast<int>((threadIdx.x >> 5) & 3u) * 16 + (lane >> 2);
#pragma unroll
  for (int at = 0; at < 32; ++at) {
    const int i = row + ((at >> 1) & 1) * 8, j = (at >> 2) * 8 + (lane & 3) * 2 + (at & 1);
    x[at] = i < rows && j < rows ? x[at] : 0.0f;
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TILES_CUH_
