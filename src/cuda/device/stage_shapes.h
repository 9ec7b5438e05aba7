// States shapes that kernels of stages and gradients share: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_STAGE_SHAPES_H_
#define SLUICE_CUDA_DEVICE_STAGE_SHAPES_H_

#include <cstdint>

namespace sluice::cuda::device {

// ------------------------------------------------------------------- any dtype, any stride ----

inline constexpr int kPlainThreads = 256;
inline constexpr int kPlainRows = 64, kPlainColumns = 32;  ///< of a tile
inline constexpr int64_t kPlainMaxK = 512;                 ///< of stages that carry a state

/// Shared bytes of the plain kernels that carry a state of K x 32.
constexpr int64_t plain_chain_bytes(int64_t K) noexcept { return 4 * kPlainColumns * K; }

// ------------------------------------------------------- 16-bit numbers, by tensor cores ----

inline constexpr int kRows = 64;                      ///< tokens of a block
inline constexpr int kColumns = 64;                   ///< of a tile: 128 bytes a row
inline constexpr int64_t kTileBytes = 8192;           ///< 64 x 64 numbers of 16 bits
inline constexpr int64_t kTileMaxK = 256;             ///< of stages of one chunk
inline constexpr int64_t kChainMaxK = 128;            ///< of stages that carry a state: 64 or this
inline constexpr int kBlockThreads = 128;             ///< of a CTA that has a block of rows
inline constexpr int kWideRing = 2, kNarrowRing = 3;  ///< blocks of chunk_h's 64 or 32 columns
inline constexpr int kChainThreads = 256;             ///< of a CTA that carries a state

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_STAGE_SHAPES_H_
