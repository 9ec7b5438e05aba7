// Finds where a row lies, and computes the numbers of its norm.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_ROWS_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda::gated_norm {

/// Indices of a row.
struct Place {
  int64_t index[4];

  /// Element of the row's first number.
  __device__ __forceinline__ int64_t in(const NormRows& rows) const {
    return index[0] * rows.stride[0] + index[1] * rows.stride[1] + index[2] * rows.stride[2] +
           index[3] * rows.stride[3];
  }
};

__device__ __forceinline__ Place place_of(const NormParams& p, int64_t row) {
  Place place{};
  int64_t left = row;
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    const int64_t above = left / p.shape[axis];
    place.index[axis] = left - above * p.shape[axis];
    left = above;
  }
  place.index[0] = left;
  return place;
}

/// What the convolution said of the row's token; live where nothing was said.
__device__ __forceinline__ RowKind kind_of(const NormParams& p, const Place& place) {
  if (p.row_kinds == nullptr) return RowKind::kLive;
  return p.row_kinds[place.index[0] * p.row_kinds_stride + place.index[1]];
}

/// x as the norm takes it.
__device__ __forceinline__ float norm_input(const NormParams& p, float x) {
  return p.rounding == Rounding::kNone ? x : device::rounded(p.rounded_to, x);
}

/// weight * act(z) * x / rms(x), with factor = 1 / rms(x).
__device__ __forceinline__ float norm_output(const NormParams& p, float x, float factor,
                                             float weight, float z) {
  float normalised = x * factor;
  if (p.rounding == Rounding::kInputAndNormalised) {
    normalised = device::rounded(p.rounded_to, normalised);
  }
  return normalised * weight * (p.silu ? device::silu(z) : device::sigmoid(z));
}

/// Sums over a group of neighbouring lanes, the same bits in each of them.
template <int kRows>
__device__ __forceinline__ void sum_over_group(float (&sum)[kRows], int lanes) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    if (mask >= lanes) break;
#pragma unroll
    for (int j = 0; j < kRows; ++j) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], mask);
  }
}

/// 1 / rms.
__device__ __forceinline__ float factor_of(const NormParams& p, float sum_of_squares) {
  return rsqrtf(fmaf(sum_of_squares, p.inverse_V, p.eps));
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_ROWS_CUH_
