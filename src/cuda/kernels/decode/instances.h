// The instantiations of the decode kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_

#include "cuda/kernels/decode/single/params.h"

namespace sluice::cuda::decode {

/// The kernel for K up to the number in its name and a layout of states; takes one DecodeParams.
/// @param packed DecodeParams::packed
const void* k64_kv(bool layer, bool packed) noexcept;
const void* k64_vk(bool layer, bool packed) noexcept;
const void* k128_kv(bool layer, bool packed) noexcept;
const void* k128_vk(bool layer, bool packed) noexcept;
const void* k256_kv(bool layer, bool packed) noexcept;
const void* k256_vk(bool layer, bool packed) noexcept;

/// The kernel of single tokens of 16 bits.
/// @param kind has_single() accepts it
SingleInstance single_bf16(const SingleKind& kind) noexcept;
SingleInstance single_fp16(const SingleKind& kind) noexcept;

/// The same of SingleCut::kStream.
/// @param state float32, or like the tokens
SingleInstance single_stream_bf16(Number state) noexcept;
SingleInstance single_stream_fp16(Number state) noexcept;

/// The same of layers.
/// @param state float32, or like the tokens
SingleInstance single_layer_bf16(Number state) noexcept;
SingleInstance single_layer_fp16(Number state) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_INSTANCES_H_
