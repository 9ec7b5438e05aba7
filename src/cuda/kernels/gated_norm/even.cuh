// Rows of 16-bit numbers that are one evenly spaced axis, in the form of models: V of 128 or 256,
// SiLU, weights that are packs. A lane has eight numbers of one row, and nothing is looked up or
// divided: PERF code that runs once is fetched as it runs, and a launch of as many rows as there
// are keeps more of them in flight than walks do.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_EVEN_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_EVEN_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/gated_norm/walk.cuh"

namespace sluice::cuda::gated_norm {

template <Number kType>
__device__ __forceinline__ void load_packed_weights(const HeadScalar& weight, int column,
                                                    float (&out)[kPack]) {
  if (weight.number != Number::kFloat32) {
    const auto* at = static_cast<const char*>(weight.data) + column * 2;
    return Eight<kType>{__ldg(reinterpret_cast<const uint4*>(at))}.unpack(out);
  }
  const auto* at = reinterpret_cast<const uint4*>(static_cast<const float*>(weight.data) + column);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 w = __ldg(at + i);
    out[4 * i] = __uint_as_float(w.x), out[4 * i + 1] = __uint_as_float(w.y);
    out[4 * i + 2] = __uint_as_float(w.z), out[4 * i + 3] = __uint_as_float(w.w);
  }
}

/// kLanes lanes a row; p.walk's strides of members are those of rows.
template <Number kType, int kLanes>
__global__ void __launch_bounds__(kThreads) even_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const uint32_t row = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const auto column = static_cast<int>(threadIdx.x % kLanes) * kPack;
  const bool live = row < p.rows;  // WHY no return: all lanes of a warp take part in a sum
  const auto at = [&](const void* data, const WalkStrides& strides) {
    return const_cast<char*>(static_cast<const char*>(data)) + row * strides.member + column * 2;
  };
  Eight<kType> x{}, z{};
  if (live) {
    x = Eight<kType>::load(at(p.x.data, p.walk.x));
    z = Eight<kType>::load(at(p.z.data, p.walk.z));
  }
  float weight[kPack], sum[1] = {squares(x)};
  load_packed_weights<kType>(p.weight, column, weight);
  sum_rows(sum, kLanes);
  if (!live) return;
  finish_row<true>(p, x, z, factor_of(p, sum[0]), weight, true, at(p.out.data, p.walk.out));
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_EVEN_CUH_
