// States the shapes of the stage kernels: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_
#define SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_

#include "cuda/device/stage_params.h"

namespace sluice::cuda::stages {

using device::kBlockThreads, device::kChainMaxK, device::kChainThreads, device::kColumns;
using device::kNarrowRing, device::kPlainColumns, device::kPlainMaxK, device::kPlainRows;
using device::kPlainThreads, device::kRows, device::kTileBytes, device::kTileMaxK;
using device::kWideRing, device::plain_chain_bytes;

// ------------------------------------------------------------------- any dtype, any stride ----

inline constexpr int kSumThreads = 256, kSumHeads = 32;
inline constexpr int kSolveThreads = 128;

inline constexpr int kTrianglePadding = 8;  ///< floats of a row past the matrix
/// Shared bytes of a matrix that is inverted.
constexpr int64_t triangle_bytes(int64_t C) noexcept { return 4 * C * (C + kTrianglePadding); }

// ------------------------------------------------------- 16-bit numbers, by tensor cores ----

/// Shared bytes of solve_wy.cuh: tiles of X with either factor and of a turn of columns, what lies
/// over X or X itself, and two numbers for each of 128 tokens.
constexpr int64_t solve_wy_bytes(int64_t C) noexcept {
  const int64_t blocks = C / kRows, later = (blocks + 1) * kTileBytes;
  const int64_t over = later > triangle_bytes(C) ? later : triangle_bytes(C);
  return (blocks * (blocks + 1) + blocks) * kTileBytes + over + 2 * 4 * 128;
}
inline constexpr int kJoinThreads = 256;       ///< four numbers of a state each
inline constexpr int64_t kLeastSegment = 512;  ///< tokens

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_CONFIG_H_
