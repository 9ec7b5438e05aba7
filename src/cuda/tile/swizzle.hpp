// Computes the 128-byte swizzle of the copy engine and of wgmma operands, and descriptors of such tiles
// (PTX ISA 9.7.15.5.1), on host and device.
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

/// Descriptor with its fields in bytes: bits 0-13 address, 16-29 leading offset, 32-45 stride
/// offset, all in units of 16 bytes; bits 62-63 = 1 names the 128-byte swizzle.
SLUICE_HOST_DEVICE constexpr uint64_t make_descriptor(uint32_t address, uint32_t leading,
                                                      uint32_t stride) {
  return (uint64_t{1} << 62) | (static_cast<uint64_t>(stride >> 4) << 32) |
         (static_cast<uint64_t>(leading >> 4) << 16) | ((address & 0x3FFFFu) >> 4);
}

/// Rows are M or N, 64 elements of the reduction dimension lie along a row. Stride offset: from 8
/// rows to the next 8; the leading offset is not used.
SLUICE_HOST_DEVICE constexpr uint64_t k_major(uint32_t address) {
  return make_descriptor(address, 16, kAtomBytes);
}

/// Rows are the reduction dimension, 64 elements of N lie along a row. Leading offset: from 64
/// columns of N to the next 64, which are `block_bytes` away; stride offset: from 8 rows to the
/// next.
SLUICE_HOST_DEVICE constexpr uint64_t mn_major(uint32_t address, uint32_t block_bytes) {
  return make_descriptor(address, block_bytes, kAtomBytes);
}

/// The descriptor `bytes` further on.
SLUICE_HOST_DEVICE constexpr uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_SWIZZLE_HPP_
