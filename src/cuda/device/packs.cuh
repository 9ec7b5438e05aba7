// Moves 16 bytes at a time: eight numbers of one 16-bit type.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_PACKS_CUH_
#define SLUICE_CUDA_DEVICE_PACKS_CUH_

#include "cuda/device/store.cuh"
#include "cuda/ptx/address.cuh"
#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::device {

/// Neighbours at an aligned address. WHY an instance a type: asking for it at run time was a branch
/// an element, and conversions one by one.
template <Number kType>
struct Pack {
  static constexpr int kElements = 8;
  uint4 words;

  /// From memory that the kernel does not write.
  static __device__ __forceinline__ Pack load(const void* at) {
    return {__ldg(static_cast<const uint4*>(at))};
  }
  /// From memory that it may write.
  static __device__ __forceinline__ Pack load_written(const void* at) {
    return {*static_cast<const uint4*>(at)};
  }
  /// The two numbers of a word, the low half first.
  static __device__ __forceinline__ void unpack_word(uint32_t word, float (&out)[2]) {
    if constexpr (kType == Number::kBfloat16) {
      out[0] = __uint_as_float(word << 16), out[1] = __uint_as_float(word & 0xffff0000u);
    } else {
      out[0] = from_bits(kType, static_cast<unsigned short>(word));
      out[1] = from_bits(kType, static_cast<unsigned short>(word >> 16));
    }
  }
  /// Rounds to nearest even.
  static __device__ __forceinline__ uint32_t joined(const float (&x)[2]) {
    return kType == Number::kBfloat16 ? ptx::pack_bf16(x[0], x[1]) : ptx::pack_f16(x[0], x[1]);
  }
  __device__ __forceinline__ void unpack(float (&out)[kElements]) const {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x[2];
      unpack_word(word[i], x);
      out[2 * i] = x[0], out[2 * i + 1] = x[1];
    }
  }
  static __device__ __forceinline__ void store(void* at, const float (&x)[kElements]) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = joined({x[2 * i], x[2 * i + 1]});
    ptx::store_16(at, {word[0], word[1], word[2], word[3]});
  }
};

using BfloatPack = Pack<Number::kBfloat16>;
using HalfPack = Pack<Number::kFloat16>;

/// Calls visit(const T*) for an array of a type known at run time. PERF the type is asked for once,
/// not a number.
template <class Visit>
__device__ __forceinline__ void with_type(const void* data, Number number, const Visit& visit) {
  if (number == Number::kFloat32) return visit(static_cast<const float*>(data));
  if (number == Number::kBfloat16) return visit(static_cast<const __nv_bfloat16*>(data));
  visit(static_cast<const __half*>(data));
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_PACKS_CUH_
