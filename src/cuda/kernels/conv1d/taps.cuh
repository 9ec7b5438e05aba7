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

/// Of channels from d on, any width, type and stride.
template <int kCount = 1>
__device__ __forceinline__ Taps<kCount> load_taps(const ConvParams& p, int64_t d) {
  Taps<kCount> taps{};
  device::with_type(p.weight.data, p.weight.number, [&](const auto* weights) {
    const int missing = kMaxWidth - p.W;
#pragma unroll
    for (int at = 0; at < kCount * kMaxWidth; ++at) {
      const int i = at / kMaxWidth, w = at % kMaxWidth;
      if (w < missing) continue;
      taps.tap[w][i] = device::to_float(__ldg(weights + (d + i) * p.weight.stride + w - missing));
    }
  });
  if (p.bias.data == nullptr) return taps;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    taps.bias[i] = device::load_number(p.bias.data, (d + i) * p.bias.stride, p.bias.number);
  }
  return taps;
}

template <int kCount>
__device__ __forceinline__ void add_products(float (&sum)[kCount], const float (&tap)[kCount],
                                             const float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] = fmaf(tap[i], x[i], sum[i]);
}

/// y = act(bias + sum_w weight_w x_w) of inputs, oldest first; `inputs` is a ring of rows, of which
/// `newest` has the newest. WHY the branches: a tap that is not there may meet NaN, and zero times
/// NaN is NaN. Every path sums in this order: one set of bits.
/// @tparam kUsual W = 4 with SiLU is known
template <bool kUsual = false, int kRows, int kCount>
__device__ __forceinline__ void convolve(const ConvParams& p, const Taps<kCount>& taps,
                                         const float (&inputs)[kRows][kCount], int newest,
                                         float (&y)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = taps.bias[i];
#pragma unroll
  for (int age = kMaxWidth - 1; age >= 0; --age) {
    const int row = (newest + kRows - age) % kRows;
    const bool there = kUsual || age < 2 || age < p.W;
    if (there) add_products(y, taps.tap[kMaxWidth - 1 - age], inputs[row]);
  }
  if (!kUsual && !p.silu) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = device::silu(y[i]);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
