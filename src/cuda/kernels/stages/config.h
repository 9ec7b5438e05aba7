// Shapes of the stage kernels: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_
#define SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_

#include <cstdint>

namespace sluice::cuda::stages {

// ------------------------------------------------------------------- any dtype, any stride ----

inline constexpr int kSumThreads = 256, kSumHeads = 32;
inline constexpr int kSolveThreads = 128, kSolveBlock = 16;
inline constexpr int kPlainThreads = 256;
inline constexpr int kPlainRows = 64, kPlainColumns = 32;  ///< of a tile
inline constexpr int64_t kPlainMaxK = 512;                 ///< of stages that carry a state

inline constexpr int kTrianglePadding = 8;  ///< floats of a row past the matrix
/// Shared bytes of a matrix that is inverted.
constexpr int64_t triangle_bytes(int64_t C) noexcept { return 4 * C * (C + kTrianglePadding); }

/// Shared bytes of the plain kernels that carry a state of K x 32.
constexpr int64_t plain_chain_bytes(int64_t K) noexcept { return 4 * kPlainColumns * K; }

// ------------------------------------------------------- 16-bit numbers, by tensor cores ----

inline constexpr int kRows = 64;             ///< tokens of a block
inline constexpr int kColumns = 64;          ///< of a tile: 128 bytes a row
inline constexpr int64_t kTileBytes = 8192;  ///< 64 x 64 numbers of 16 bits
inline constexpr int64_t kTileMaxK = 256;    ///< of stages of one chunk
inline constexpr int64_t kChainMaxK = 128;   ///< of stages that carry a state: 64 or this
inline constexpr int kBlockThreads = 128;    ///< of a CTA that has a block of rows
/// Shared bytes of solve_wy.cuh: tiles of X with either factor and of a turn of columns, what lies
/// over X or X itself, and two numbers for each of 128 tokens.
constexpr int64_t solve_wy_bytes(int64_t C) noexcept {
  const int64_t blocks = C / kRows, later = (blocks + 1) * kTileBytes;
  const int64_t over = later > triangle_bytes(C) ? later : triangle_bytes(C);
  return (blocks * (blocks + 1) + blocks) * kTileBytes + over + 2 * 4 * 128;
}
inline constexpr int kJoinThreads = 256;              ///< four numbers of a state each
inline constexpr int64_t kLeastSegment = 512;         ///< tokens
inline constexpr int kWideRing = 2, kNarrowRing = 3;  ///< blocks of chunk_h's 64 or 32 columns
inline constexpr int kChainThreads = 256;             ///< of a CTA that carries a state

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_
