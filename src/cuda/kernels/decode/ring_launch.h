// Host side of the ring kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_RING_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_DECODE_RING_LAUNCH_H_

#include "cuda/kernels/decode/ring_params.h"

namespace sluice::cuda::decode {

/// The instances for K up to the number in their name, one translation unit each (inst/).
/// @param layer DecodeParams::layer
/// @param packed states have 16 bits
const void* ring_k64_kv(bool layer, bool packed) noexcept;
const void* ring_k64_vk(bool layer, bool packed) noexcept;
const void* ring_k128_kv(bool layer, bool packed) noexcept;
const void* ring_k128_vk(bool layer, bool packed) noexcept;

/// The instances of ring_model.cuh for tokens of a type.
const void* ring_model_bf16(const RingKind& kind) noexcept;
const void* ring_model_fp16(const RingKind& kind) noexcept;

/// Shared memory of a CTA.
constexpr RingSizes ring_sizes(const RingParams& p) noexcept {
  return {p.step.K <= 64 ? 64 : kMaxRingK,
          p.step.grid.column_bits,
          p.step.rows.max_tokens,
          p.step.r,
          p.step.layer,
          p.step.grid.ctas};
}

/// As load_kernels() and launch() of launch.h.
int load_ring_kernels() noexcept;
int launch_ring(const RingParams& params, int64_t sequences, bool is_vk, void* stream) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_RING_LAUNCH_H_
