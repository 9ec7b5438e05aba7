// Host side of the ring kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_REPLAY_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_DECODE_REPLAY_INSTANCES_H_

#include "cuda/kernels/decode/replay/params.h"

namespace sluice::cuda::decode {

/// The instances for K up to the number in their name, one translation unit each (inst/).
/// @param layer DecodeParams::layer
/// @param packed states have 16 bits
const void* replay_k64_kv(bool layer, bool packed) noexcept;
const void* replay_k64_vk(bool layer, bool packed) noexcept;
const void* replay_k128_kv(bool layer, bool packed) noexcept;
const void* replay_k128_vk(bool layer, bool packed) noexcept;

/// The instances of replay/model.cuh for tokens of a type.
const void* replay_model_bf16(const ReplayModel& kind) noexcept;
const void* replay_model_fp16(const ReplayModel& kind) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_INSTANCES_H_
