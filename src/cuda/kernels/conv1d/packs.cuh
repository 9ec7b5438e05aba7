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
  static constexpr int kElements = 4;
  static constexpr int kBatch = 8;  ///< loads in flight
  uint2 words;

  static __device__ __forceinline__ ShortPack load(const TokenChannels& t, int64_t element) {
    const auto* data = static_cast<const unsigned short*>(t.data);
    return {__ldg(reinterpret_cast<const uint2*>(data + element))};
  }
  __device__ __forceinline__ void unpack(Number number, float (&out)[kElements]) const {
    const uint32_t word[2] = {words.x, words.y};
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const auto bits = static_cast<unsigned short>(word[i / 2] >> (i % 2 * 16));
      out[i] = device::from_bits(number, bits);
    }
  }
  static __device__ __forceinline__ void store(const TokenChannels& t, int64_t element,
                                               const float (&values)[kElements]) {
    uint32_t bits[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) bits[i] = device::to_bits(t.number, values[i]);
    auto* data = static_cast<unsigned short*>(t.data);
    *reinterpret_cast<uint2*>(data + element) = {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16};
  }
};

/// The same of float32: 16 bytes.
struct FloatPack {
  static constexpr int kElements = 4;
  static constexpr int kBatch = 4;
  float4 values;

  static __device__ __forceinline__ FloatPack load(const TokenChannels& t, int64_t element) {
    return {__ldg(reinterpret_cast<const float4*>(static_cast<const float*>(t.data) + element))};
  }
  __device__ __forceinline__ void unpack(Number, float (&out)[kElements]) const {
    out[0] = values.x, out[1] = values.y, out[2] = values.z, out[3] = values.w;
  }
  static __device__ __forceinline__ void store(const TokenChannels& t, int64_t element,
                                               const float (&x)[kElements]) {
    *reinterpret_cast<float4*>(static_cast<float*>(t.data) + element) = {x[0], x[1], x[2], x[3]};
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
