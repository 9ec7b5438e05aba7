// What the replay ring's kernel is told beyond a step, and its shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_RING_PARAMS_H_
#define SLUICE_CUDA_KERNELS_DECODE_RING_PARAMS_H_

#include "cuda/kernels/decode/params.h"

namespace sluice::cuda::decode {

inline constexpr int kMaxRingEntries = 16;  ///< of a slot
inline constexpr int kMaxRingTokens = 8;    ///< of a call
inline constexpr int kMaxRingK = 128;       ///< K of the largest instance

/// Entries of all slots: [slots,L,heads,D], contiguous inside a slot; of decay without D.
struct RingArray {
  void* data;
  int64_t slot_stride;   ///< elements
  int32_t entry_stride;  ///< elements
  Number number;
};

/// Arguments of the ring kernel. step: one tile a CTA, not packed, states in place.
struct RingParams {
  DecodeParams step;
  RingArray k, delta, decay;
  IndexVector position, checkpoint;  ///< [N]
  IndexVector next_checkpoint;       ///< [N], written; data may be null
  int32_t L;
  bool always;  ///< fold, whatever fits
};

/// Sizes of a CTA's shared memory, in floats; ring.cuh has the same order.
struct RingSizes {
  int K;        ///< of the instance
  int columns;  ///< of a tile
  int max_tokens, r, L;
  bool is_vk;

  /// Products of S0 with k and q: of [K,V] those of every warp.
  constexpr int partials() const noexcept {
    return 2 * max_tokens * columns * (is_vk ? 1 : warps_of(K));
  }
  constexpr int floats() const noexcept {
    return partials() + max_tokens * (2 * K + columns) + L * (K + columns) + 4 * max_tokens +
           2 * max_tokens * kMaxRingEntries + (max_tokens + 1) * (kMaxRingEntries + 1) +
           kMaxRingEntries + 2 * max_tokens * r;
  }
  constexpr size_t bytes() const noexcept { return sizeof(float) * static_cast<size_t>(floats()); }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_RING_PARAMS_H_
