// Loads weights of channels, and sums over them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/kernels/conv1d/packs.cuh"

namespace sluice::cuda::conv1d {

/// kCount channels: weights right-aligned, so that tap[3] belongs to the newest input.
template <int kCount>
struct Taps {
  float tap[kMaxWidth][kCount], bias[kCount];
};

/// W = 4, and a channel's weights are one aligned load.
__device__ __forceinline__ void load_fours(const ConvParams& p, int64_t d, Taps<1>& taps) {
  if (p.weight_number == Number::kFloat32) {
    const float4 w = __ldg(static_cast<const float4*>(p.weight) + d);
    taps.tap[0][0] = w.x, taps.tap[1][0] = w.y, taps.tap[2][0] = w.z, taps.tap[3][0] = w.w;
    return;
  }
  const uint2 w = __ldg(static_cast<const uint2*>(p.weight) + d);
  float first[2], second[2];
  if (p.weight_number == Number::kBfloat16) {
    BfloatPack::split(w.x, first), BfloatPack::split(w.y, second);
  } else {
    HalfPack::split(w.x, first), HalfPack::split(w.y, second);
  }
  taps.tap[0][0] = first[0], taps.tap[1][0] = first[1];
  taps.tap[2][0] = second[0], taps.tap[3][0] = second[1];
}

/// Any width and stride.
template <class T>
__device__ __forceinline__ void load_strided(const ConvParams& p, int64_t d, Taps<1>& taps) {
  const T* weights = static_cast<const T*>(p.weight) + d * p.weight_stride;
#pragma unroll
  for (int w = 0; w < kMaxWidth; ++w) {
    const int stored = w - (kMaxWidth - p.W);
    if (stored >= 0) taps.tap[w][0] = device::to_float(__ldg(weights + stored));
  }
}

template <class T>
__device__ __forceinline__ void load_bias(const ConvParams& p, int64_t d, Taps<1>& taps) {
  const T* bias = static_cast<const T*>(p.bias.data) + d * p.bias.stride;
  taps.bias[0] = device::to_float(__ldg(bias));
}

/// Of channel d.
__device__ __forceinline__ Taps<1> load_taps(const ConvParams& p, int64_t d) {
  Taps<1> taps{};
  if (p.weight_in_fours) {
    load_fours(p, d, taps);
  } else if (p.weight_number == Number::kFloat32) {
    load_strided<float>(p, d, taps);
  } else if (p.weight_number == Number::kBfloat16) {
    load_strided<__nv_bfloat16>(p, d, taps);
  } else {
    load_strided<__half>(p, d, taps);
  }
  if (p.bias.data == nullptr) return taps;
  if (p.bias.number == Number::kFloat32) {
    load_bias<float>(p, d, taps);
  } else if (p.bias.number == Number::kBfloat16) {
    load_bias<__nv_bfloat16>(p, d, taps);
  } else {
    load_bias<__half>(p, d, taps);
  }
  return taps;
}

template <int kCount>
__device__ __forceinline__ void add_products(float (&sum)[kCount], const float (&tap)[kCount],
                                             const float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] = fmaf(tap[i], x[i], sum[i]);
}

template <int kCount>
__device__ __forceinline__ void activate(float (&y)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = device::silu(y[i]);
}

/// y = act(bias + sum_w weight_w x_w) of inputs, oldest first. WHY the branches: a tap that is not
/// there may meet NaN, and zero times NaN is NaN. Every path sums in this order: one set of bits.
/// @tparam kUsual W = 4 with SiLU is known
template <bool kUsual = false, int kCount>
__device__ __forceinline__ void convolve(const ConvParams& p, const Taps<kCount>& taps,
                                         const float (&x3)[kCount], const float (&x2)[kCount],
                                         const float (&x1)[kCount], const float (&x0)[kCount],
                                         float (&y)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = taps.bias[i];
  if (kUsual || p.W > 3) add_products(y, taps.tap[0], x3);
  if (kUsual || p.W > 2) add_products(y, taps.tap[1], x2);
  add_products(y, taps.tap[2], x1);
  add_products(y, taps.tap[3], x0);
  if (kUsual || p.silu) activate(y);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
