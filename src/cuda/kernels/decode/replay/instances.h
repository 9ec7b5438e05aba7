// Names the instances of the replay kernel for the host; inst/ compiles them.
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

/// The instances for models, by the type of tokens.
const void* replay_model_bf16(const ReplayModel& model) noexcept;
const void* replay_model_fp16(const ReplayModel& model) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_REPLAY_INSTANCES_H_
