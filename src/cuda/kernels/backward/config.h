// States the shapes of the kernels of chunk_backward: host code.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CONFIG_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_CONFIG_H_

#include <cstdint>

#include "cuda/device/stage_params.h"

namespace sluice::cuda::backward {

inline constexpr int kTokens = 64;  ///< of a chunk, and rows of a tile: device::kPlainRows
inline constexpr int kThreads = device::kPlainThreads;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int64_t kOperandBytes =
    4 * 16 * (device::kPlainRows + 4 + device::kPlainColumns + 2);
/// Shared bytes: operands, G of 128 tokens, a square.
inline constexpr int64_t kLocalBytes = kOperandBytes + 4 * 128 + 4 * kTokens * (kTokens + 1);
/// Operands, G of 128 tokens, dN of 64 x 32; D comes on top.
inline constexpr int64_t kChainBytes =
    kOperandBytes + 4 * 128 + 4 * kTokens * device::kPlainColumns;
/// Operands, G and beta of 128 tokens, three squares, five numbers a token and one a warp.
inline constexpr int64_t kGradientBytes =
    kOperandBytes + 8 * 128 + 3 * 4 * kTokens * (kTokens + 1) + 4 * (5 * kTokens + kWarps);
inline constexpr int64_t kMaxK = device::kPlainMaxK;
inline constexpr int64_t kNarrowK = 128;  ///< kernels of rows have instances for K up to this

/// K and V of 16-bit numbers by tensor cores. Of half of it the copy engine makes tiles of this size:
/// it reads zeros past a tensor's end, and writes nothing there.
inline constexpr int64_t kTileSize = 128;

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CONFIG_H_
