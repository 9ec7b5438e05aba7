// Loads weights of channels, and sums over them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/packs.cuh"
#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

/// kCount channels: weights right-aligned, so that tap[3] belongs to the newest input.
template <int kCount>
struct Taps {
  float tap[kMaxWidth][kCount], bias[kCount];
};

/// Of channel d, any width, type and stride.
__device__ __forceinline__ Taps<1> load_taps(const ConvParams& p, int64_t d) {
  Taps<1> taps{};
  device::with_type(p.weight, p.weight_number, [&](const auto* weights) {
    const int missing = kMaxWidth - p.W;
#pragma unroll
    for (int w = 0; w < kMaxWidth; ++w) {
      if (w < missing) continue;
      taps.tap[w][0] = device::to_float(__ldg(weights + d * p.weight_stride + w - missing));
    }
  });
  if (p.bias.data == nullptr) return taps;
  taps.bias[0] = device::load_number(p.bias.data, d * p.bias.stride, p.bias.number);
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
