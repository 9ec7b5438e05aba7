// Names the instances of the decode kernels for the host; inst/ compiles them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_

#include "cuda/kernels/decode/replay/params.h"
#include "cuda/kernels/decode/single/params.h"

namespace sluice::cuda::decode {

/// The kernel for K up to the number in its name and a layout of states; takes one DecodeParams.
const void* k64_kv(AnyForm form) noexcept;
const void* k64_vk(AnyForm form) noexcept;
const void* k128_kv(AnyForm form) noexcept;
const void* k128_vk(AnyForm form) noexcept;
const void* k256_kv(AnyForm form) noexcept;
const void* k256_vk(AnyForm form) noexcept;

/// The kernel of single tokens, by their type, and by the layout of states: [K,V], or [V,K].
/// @param kind has_single() accepts its types
SingleInstance single_bf16(const SingleKind& kind) noexcept;
SingleInstance single_fp16(const SingleKind& kind) noexcept;
SingleInstance single_bf16_vk(const SingleKind& kind) noexcept;
SingleInstance single_fp16_vk(const SingleKind& kind) noexcept;
/// Those with gates of rows.
SingleInstance single_keys_bf16(const SingleKind& kind) noexcept;
SingleInstance single_keys_fp16(const SingleKind& kind) noexcept;
SingleInstance single_keys_bf16_vk(const SingleKind& kind) noexcept;
SingleInstance single_keys_fp16_vk(const SingleKind& kind) noexcept;

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

#endif  // SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_
