// Adds up rows of partial sums, in an order that their number alone decides.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_COLUMN_SUMS_CUH_
#define SLUICE_CUDA_DEVICE_COLUMN_SUMS_CUH_

#include "cuda/device/load.cuh"

namespace sluice::cuda::device {

/// Of a CTA that adds up 32 columns.
inline constexpr int kSumWarps = 8, kSumThreads = kSumWarps * 32;
inline constexpr int kSumBytes = kSumThreads * sizeof(float);

/// Calls store(column, sum) for the CTA's 32 columns of sums [rows, columns]. Warp w adds rows w,
/// w + 8, .. in ascending order, and the first warp these eight.
template <class Store>
__device__ __forceinline__ void add_columns(const float* sums, int64_t rows, int64_t columns,
                                            float* parts, const Store& store) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t column = int64_t{blockIdx.x} * 32 + lane;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 16
    for (int64_t row = warp; row < rows; row += kSumWarps) sum += sums[row * columns + column];
  }
  parts[warp * 32 + lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
#pragma unroll
  for (int w = 1; w < kSumWarps; ++w) sum += parts[w * 32 + lane];
  store(column, sum);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_COLUMN_SUMS_CUH_
