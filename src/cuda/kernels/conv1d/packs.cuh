// How threads move inputs and outputs: 16 bytes of one type, or one element of any type.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/conv1d/params.h"
#include "cuda/ptx/address.cuh"
#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::conv1d {

/// Neighbours of one type at an aligned address. WHY an instance a type: asking for it at run time
/// was a branch an element, and conversions one by one.
template <Number kType>
struct Pack {
  static constexpr bool kIsFloat = kType == Number::kFloat32;
  static constexpr int kElements = kIsFloat ? 4 : 8;
  uint4 words;

  /// From memory that the kernel does not write.
  static __device__ __forceinline__ Pack load(const char* at, Number) {
    return {__ldg(reinterpret_cast<const uint4*>(at))};
  }
  /// From memory that the kernel also writes, and to it.
  static __device__ __forceinline__ Pack load_written(const char* at) {
    return {*reinterpret_cast<const uint4*>(at)};
  }
  __device__ __forceinline__ void store_raw(char* at) const { ptx::store_16(at, words); }
  /// Channels of a word, of 16 bits the low half first.
  static constexpr int kOfWord = kElements / 4;
  static __device__ __forceinline__ void split(uint32_t word, float (&out)[kOfWord]) {
    if constexpr (kIsFloat) {
      out[0] = __uint_as_float(word);
    } else if constexpr (kType == Number::kBfloat16) {
      out[0] = __uint_as_float(word << 16), out[1] = __uint_as_float(word & 0xffff0000u);
    } else {
      out[0] = device::from_bits(kType, static_cast<unsigned short>(word));
      out[1] = device::from_bits(kType, static_cast<unsigned short>(word >> 16));
    }
  }
  /// Rounds to nearest even.
  static __device__ __forceinline__ uint32_t joined(const float (&x)[kOfWord]) {
    if constexpr (kIsFloat) {
      return __float_as_uint(x[0]);
    } else {
      return kType == Number::kBfloat16 ? ptx::pack_bf16(x[0], x[1]) : ptx::pack_f16(x[0], x[1]);
    }
  }
  __device__ __forceinline__ void unpack(float (&out)[kElements]) const {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x[kOfWord];
      split(word[i], x);
#pragma unroll
      for (int j = 0; j < kOfWord; ++j) out[kOfWord * i + j] = x[j];
    }
  }
  static __device__ __forceinline__ void store(char* at, Number, const float (&x)[kElements]) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float of_word[kOfWord];
#pragma unroll
      for (int j = 0; j < kOfWord; ++j) of_word[j] = x[kOfWord * i + j];
      word[i] = joined(of_word);
    }
    Pack{{word[0], word[1], word[2], word[3]}}.store_raw(at);
  }
};

using BfloatPack = Pack<Number::kBfloat16>;
using HalfPack = Pack<Number::kFloat16>;
using FloatPack = Pack<Number::kFloat32>;

/// One element of whatever type.
struct ElementPack {
  static constexpr int kElements = 1;
  float value;

  static __device__ __forceinline__ ElementPack load(const char* at, Number number) {
    return {device::load_number(at, 0, number)};
  }
  __device__ __forceinline__ void unpack(float (&out)[1]) const { out[0] = value; }
  static __device__ __forceinline__ void store(char* at, Number number, const float (&x)[1]) {
    device::store_number(at, 0, number, x[0]);
  }
};

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_
