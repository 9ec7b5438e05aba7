// Computes the 128-byte swizzle of the copy engine and of wgmma operands, on host and device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_SWIZZLE_HPP_
#define SLUICE_CUDA_TILE_SWIZZLE_HPP_

#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SLUICE_HOST_DEVICE inline
#endif

namespace sluice::cuda::tile {

/// Shared memory that a CTA may have on sm_90.
inline constexpr uint32_t kSharedBytesSm90 = 227 * 1024;
/// Bytes of one row of a swizzled tile: 64 elements of 16 bits.
inline constexpr uint32_t kRowBytes = 128;
/// Bytes of one swizzle atom: 8 rows. Tiles are aligned to it.
inline constexpr uint32_t kAtomBytes = 8 * kRowBytes;

/// Byte offset of the 16-byte piece `piece` (0..7) of row `row`: pieces are permuted by row % 8.
SLUICE_HOST_DEVICE constexpr uint32_t swizzled_piece(uint32_t row, uint32_t piece) {
  return row * kRowBytes + ((piece ^ (row & 7u)) << 4);
}

/// Byte offset of the 16-bit element (row, column) with column < 64.
SLUICE_HOST_DEVICE constexpr uint32_t swizzled_element(uint32_t row, uint32_t column) {
  return swizzled_piece(row, column >> 3) + (column & 7u) * 2;
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SWIZZLE_HPP_
