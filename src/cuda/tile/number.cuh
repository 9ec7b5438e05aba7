// Defines 16-bit number formats of operands, and the fast exponential.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_NUMBER_CUH_
#define SLUICE_CUDA_TILE_NUMBER_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::tile {

/// Pairs of 16-bit numbers in one register, the first in the low half.
template <class T>
struct Packed;

template <>
struct Packed<__nv_bfloat16> {
  static __device__ __forceinline__ uint32_t pack(float first, float second) {
    return ptx::pack_bf16(first, second);
  }
  static __device__ __forceinline__ float first(uint32_t r) { return __uint_as_float(r << 16); }
  static __device__ __forceinline__ float second(uint32_t r) {
    return __uint_as_float(r & 0xFFFF0000u);
  }
  static __device__ __forceinline__ uint16_t bits(float x) {
    return static_cast<uint16_t>(pack(x, 0.0f));
  }
};

template <>
struct Packed<__half> {
  static __device__ __forceinline__ uint32_t pack(float first, float second) {
    return ptx::pack_f16(first, second);
  }
  static __device__ __forceinline__ float first(uint32_t r) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(r)));
  }
  static __device__ __forceinline__ float second(uint32_t r) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(r >> 16)));
  }
  static __device__ __forceinline__ uint16_t bits(float x) {
    return static_cast<uint16_t>(pack(x, 0.0f));
  }
};

using ptx::exp2_fast;

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_NUMBER_CUH_
