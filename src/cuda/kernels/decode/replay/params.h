// Describes a step with a replay buffer to its kernel, and the shared memory of its CTAs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_PARAMS_H_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_PARAMS_H_

#include "cuda/kernels/decode/params.h"

namespace sluice::cuda::decode {

inline constexpr int kMaxReplayEntries = 16;  ///< of a slot
inline constexpr int kMaxReplayTokens = 8;    ///< of a call
inline constexpr int kMaxReplayK = 128;       ///< K of the largest instance
inline constexpr int kModelColumnBits = 7;    ///< of a tile of models: whole heads of 128 columns

/// Entries of all slots: [slots,L,heads,D], contiguous inside a slot; of decay without D.
struct ReplayArray {
  void* data;
  int64_t slot_stride;   ///< elements
  int32_t entry_stride;  ///< elements
  Number number;
};

/// Arguments of the replay kernel. step: one tile a CTA, states in place.
struct ReplayParams {
  DecodeParams step;
  ReplayArray k, delta, decay;
  IndexVector position, checkpoint;  ///< [N]
  IndexVector next_checkpoint;       ///< [N], written; data may be null
  int32_t L;
  bool always;  ///< fold, whatever fits
};

/// What an instance for models is made for.
struct ReplayModel {
  Number tokens;   ///< of q, k, v and o; 16 bits
  Number entries;  ///< of keys and deltas: float32 or like tokens
  bool packed;     ///< states are like tokens, else float32
};

/// Floats behind each row of keys, of deltas and of sums with S0 in shared memory. PERF lanes of a
/// fragment meet in few banks.
inline constexpr int kKeyPad = 8, kDeltaPad = 16, kPartialPad = 8;

/// Sizes of a CTA's shared memory, in floats; make_replay_buffer() has the same order.
struct ReplaySizes {
  int K;  ///< of the instance
  int column_bits;
  int max_tokens, r;
  bool layer;
  int ctas;  ///< of a unit

  constexpr int entries() const noexcept {
    return kMaxReplayEntries * (K + kKeyPad + (1 << column_bits) + kDeltaPad);
  }
  /// Warps that share 32 columns.
  constexpr int row_parts() const noexcept { return warps_of(K) >> (column_bits - kMinColumnBits); }
  /// New conv states of q and k, which wait for the cluster: conv_pairs.cuh.
  constexpr int conv_words() const noexcept { return layer && ctas > 1 ? 4 * K : 0; }
  constexpr int per_token() const noexcept {
    const int columns = 1 << column_bits;
    return row_parts() * (2 * columns + kPartialPad) + 2 * K + columns +
           2 * warps_of(K) * kMaxReplayEntries + 4 + (kMaxReplayEntries + 1) + 2 * r +
           (layer ? 2 * columns + columns / 4 : 0);
  }
  constexpr int floats() const noexcept {
    return entries() + conv_words() + max_tokens * per_token() +
           2 * kMaxReplayEntries * kMaxReplayTokens + (kMaxReplayEntries + 1) + kMaxReplayEntries;
  }
  constexpr size_t bytes() const noexcept { return sizeof(float) * static_cast<size_t>(floats()); }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_PARAMS_H_
