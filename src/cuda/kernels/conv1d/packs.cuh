// How body threads move inputs and outputs: four elements of one type at a time, or one element of
// any type.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/conv1d/params.h"

namespace sluice::cuda::conv1d {

/// Four neighbours in x and out, both of one 16-bit type, at aligned addresses. WHY not eight:
/// weights and windows of eight channels are 64 registers, and the kernel spilled. WHY the type is
/// asked for at run time: an instance fewer for two instructions an element.
struct ShortPack {
  using Bits = unsigned short;  ///< an element as it lies in memory
  static constexpr int kElements = 4;
  static constexpr int kBatch = 8;  ///< loads in flight
  uint2 words;

  static __device__ __forceinline__ ShortPack load(const TokenChannels& t, int64_t element) {
    const auto* data = static_cast<const unsigned short*>(t.data);
    return {__ldg(reinterpret_cast<const uint2*>(data + element))};
  }
  /// From memory that the kernel also writes, and to it.
  static __device__ __forceinline__ ShortPack load_written(const void* data, int64_t element) {
    return {*reinterpret_cast<const uint2*>(static_cast<const Bits*>(data) + element)};
  }
  __device__ __forceinline__ void store_raw(void* data, int64_t element) const {
    *reinterpret_cast<uint2*>(static_cast<Bits*>(data) + element) = words;
  }
  __device__ __forceinline__ Bits bits(int i) const {
    return static_cast<Bits>((i < 2 ? words.x : words.y) >> (i % 2 * 16));
  }
  static __device__ __forceinline__ ShortPack of(Bits a, Bits b, Bits c, Bits d) {
    return {{static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 16,
             static_cast<uint32_t>(c) | static_cast<uint32_t>(d) << 16}};
  }
  __device__ __forceinline__ void unpack(Number number, float (&out)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) out[i] = device::from_bits(number, bits(i));
  }
  static __device__ __forceinline__ void store(const TokenChannels& t, int64_t element,
                                               const float (&values)[kElements]) {
    of(device::to_bits(t.number, values[0]), device::to_bits(t.number, values[1]),
       device::to_bits(t.number, values[2]), device::to_bits(t.number, values[3]))
        .store_raw(t.data, element);
  }
};

/// The same of float32: 16 bytes.
struct FloatPack {
  using Bits = float;
  static constexpr int kElements = 4;
  static constexpr int kBatch = 4;
  float4 values;

  static __device__ __forceinline__ FloatPack load(const TokenChannels& t, int64_t element) {
    return {__ldg(reinterpret_cast<const float4*>(static_cast<const float*>(t.data) + element))};
  }
  static __device__ __forceinline__ FloatPack load_written(const void* data, int64_t element) {
    return {*reinterpret_cast<const float4*>(static_cast<const float*>(data) + element)};
  }
  __device__ __forceinline__ void store_raw(void* data, int64_t element) const {
    *reinterpret_cast<float4*>(static_cast<float*>(data) + element) = values;
  }
  __device__ __forceinline__ Bits bits(int i) const {
    return i < 2 ? (i == 0 ? values.x : values.y) : (i == 2 ? values.z : values.w);
  }
  static __device__ __forceinline__ FloatPack of(Bits a, Bits b, Bits c, Bits d) {
    return {{a, b, c, d}};
  }
  __device__ __forceinline__ void unpack(Number, float (&out)[kElements]) const {
    out[0] = values.x, out[1] = values.y, out[2] = values.z, out[3] = values.w;
  }
  static __device__ __forceinline__ void store(const TokenChannels& t, int64_t element,
                                               const float (&x)[kElements]) {
    of(x[0], x[1], x[2], x[3]).store_raw(t.data, element);
  }
};

/// One element of whatever type.
struct ElementPack {
  static constexpr int kElements = 1;
  static constexpr int kBatch = 8;
  float value;

  static __device__ __forceinline__ ElementPack load(const TokenChannels& t, int64_t element) {
    return {device::load_number(t.data, element, t.number)};
  }
  __device__ __forceinline__ void unpack(Number, float (&out)[1]) const { out[0] = value; }
  static __device__ __forceinline__ void store(const TokenChannels& t, int64_t element,
                                               const float (&values)[1]) {
    device::store_number(t.data, element, t.number, values[0]);
  }
};

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PACKS_CUH_
