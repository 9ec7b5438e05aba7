// Weights of channels, and the sum over them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/kernels/conv1d/packs.cuh"

namespace sluice::cuda::conv1d {

/// One channel: weights right-aligned, so that tap[3] belongs to the newest input.
struct Taps {
  float tap[kMaxWidth], bias;
};

__device__ __forceinline__ Taps load_taps(const ConvParams& p, int64_t d) {
  Taps taps{};
  if (p.weight_in_fours) {
    if (p.weight_number == Number::kFloat32) {
      FloatPack{__ldg(static_cast<const float4*>(p.weight) + d)}.unpack(p.weight_number, taps.tap);
    } else {
      ShortPack{__ldg(static_cast<const uint2*>(p.weight) + d)}.unpack(p.weight_number, taps.tap);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      const int w = i - (kMaxWidth - p.W);
      if (w < 0) continue;
      taps.tap[i] = device::load_number(p.weight, d * p.weight_stride + w, p.weight_number);
    }
  }
  if (p.bias.data != nullptr) {
    taps.bias = device::load_number(p.bias.data, d * p.bias.stride, p.bias.number);
  }
  return taps;
}

/// act(bias + sum_w weight_w x_w) of inputs, oldest first. WHY the branches: a tap that is not
/// there may meet NaN, and zero times NaN is NaN. Every path sums in this order: one set of bits.
__device__ __forceinline__ float convolve(const ConvParams& p, const Taps& taps, float x3, float x2,
                                          float x1, float x0) {
  float sum = taps.bias;
  if (p.W > 3) sum = fmaf(taps.tap[0], x3, sum);
  if (p.W > 2) sum = fmaf(taps.tap[1], x2, sum);
  sum = fmaf(taps.tap[2], x1, sum);
  sum = fmaf(taps.tap[3], x0, sum);
  return p.silu ? device::silu(sum) : sum;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_TAPS_CUH_
