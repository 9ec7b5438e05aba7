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

/// Arguments of the ring kernel. step: one tile a CTA, states in place.
struct RingParams {
  DecodeParams step;
  RingArray k, delta, decay;
  IndexVector position, checkpoint;  ///< [N]
  IndexVector next_checkpoint;       ///< [N], written; data may be null
  int32_t L;
  bool always;  ///< fold, whatever fits
};

/// What an instance of ring_model.cuh is made for.
struct RingKind {
  Number tokens;   ///< of q, k, v and o; 16 bits
  Number entries;  ///< of keys and deltas: float32 or like tokens
  bool packed;     ///< states are like tokens, else float32
};

constexpr RingKind ring_kind(const RingParams& p) noexcept {
  return {p.step.q.number, p.k.number, p.step.packed};
}

/// Whether a step is as models have it: whole heads of 128 x 128 a CTA, [K,V], types of
/// ring_kind(), raw gates and beta logits of the tokens' type, l2 norms, the delta rule, each
/// sequence a batch entry, cursors of 32 bits.
constexpr bool fits_ring_model(const RingParams& p, bool is_vk) noexcept {
  const DecodeParams& step = p.step;
  const RingKind kind = ring_kind(p);
  const bool sizes = !is_vk && !step.layer && step.K == kMaxRingK && step.V == kMaxRingK &&
                     step.grid.column_bits == 7;
  const bool rows = step.rows.cu_seqlens.data == nullptr && !step.head_map_cyclic;
  const bool cursors = !p.position.is_64bit && !p.checkpoint.is_64bit &&
                       (p.next_checkpoint.data == nullptr || !p.next_checkpoint.is_64bit);
  const bool gates = step.gate_form == GateForm::kRaw && step.beta_form == BetaForm::kLogit &&
                     step.gate.number == kind.tokens && step.beta.number == kind.tokens &&
                     step.l2norm && step.delta_rule;
  const Number state = kind.packed ? kind.tokens : Number::kFloat32;
  return sizes && gates && rows && cursors && kind.tokens != Number::kFloat32 &&
         step.o.number == kind.tokens && step.state.initial.pool.number == state &&
         p.delta.number == kind.entries &&
         (kind.entries == Number::kFloat32 || kind.entries == kind.tokens);
}

/// Floats behind each row of keys, of deltas and of sums with S0 in shared memory. PERF lanes of a
/// fragment meet in few banks.
inline constexpr int kKeyPad = 8, kDeltaPad = 16, kPartialPad = 8;

/// Sizes of a CTA's shared memory, in floats; make_ring_stage() has the same order.
struct RingSizes {
  int K;  ///< of the instance
  int column_bits;
  int max_tokens, r;
  bool layer;
  int ctas;  ///< of a unit

  constexpr int entries() const noexcept {
    return kMaxRingEntries * (K + kKeyPad + (1 << column_bits) + kDeltaPad);
  }
  /// Warps that share 32 columns.
  constexpr int splits() const noexcept { return warps_of(K) >> (column_bits - kMinColumnBits); }
  /// New conv states of q and k, which wait for the cluster: conv_pairs.cuh.
  constexpr int conv_words() const noexcept { return layer && ctas > 1 ? 4 * K : 0; }
  constexpr int per_token() const noexcept {
    const int columns = 1 << column_bits;
    return splits() * (2 * columns + kPartialPad) + 2 * K + columns +
           2 * warps_of(K) * kMaxRingEntries + 4 + (kMaxRingEntries + 1) + 2 * r +
           (layer ? 2 * columns + columns / 4 : 0);
  }
  constexpr int floats() const noexcept {
    return entries() + conv_words() + max_tokens * per_token() +
           2 * kMaxRingEntries * kMaxRingTokens + (kMaxRingEntries + 1) + kMaxRingEntries;
  }
  constexpr size_t bytes() const noexcept { return sizeof(float) * static_cast<size_t>(floats()); }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_RING_PARAMS_H_
