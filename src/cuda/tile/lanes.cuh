// Says which lane, warp and thread this is, and which numbers of a product's result it has.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_LANES_CUH_
#define SLUICE_CUDA_TILE_LANES_CUH_

#include <cstdint>

namespace sluice::cuda::tile {

/// Of the 32 of a warp.
__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ bool is_first_lane() { return lane() == 0; }
/// Of the CTA.
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }
/// Of the CTA: 128 threads.
__device__ __forceinline__ int warpgroup() { return static_cast<int>(threadIdx.x / 128); }
/// Of the four of a warpgroup.
__device__ __forceinline__ int warp_of_group() { return warp() % 4; }
/// Of the 128 of a warpgroup.
__device__ __forceinline__ int thread_of_group() { return static_cast<int>(threadIdx.x % 128); }
__device__ __forceinline__ bool is_first_of_group() { return thread_of_group() == 0; }

/// A lane's first row of the 16 that a warp has of a result; the other one is 8 further down.
__device__ __forceinline__ int lane_row() { return lane() / 4; }
/// The same of the 64 rows that a warpgroup has.
__device__ __forceinline__ int group_row() { return warp_of_group() * 16 + lane_row(); }
/// A lane's first column of each 8 of a result; the other one is next to it.
__device__ __forceinline__ int lane_column() { return lane() % 4 * 2; }

/// The sum of x of a lane and of those before it, in each group of kLanes lanes. Whole warps. NUM: no
/// cancellation, so that a large number, or NaN, leaves the lanes before it as they are.
template <int kLanes = 32, class T>
__device__ __forceinline__ T sum_to_lane(T x) {
  const int place = lane() % kLanes;
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const T before = __shfl_up_sync(~0u, x, step);
    if (place >= step) x += before;
  }
  return x;
}
/// The same without the lane's own x.
template <int kLanes = 32>
__device__ __forceinline__ float sum_before_lane(float x) {
  const float before = __shfl_up_sync(~0u, sum_to_lane<kLanes>(x), 1);
  return lane() % kLanes == 0 ? 0.0f : before;
}
/// The sums of 4 x 16 numbers, four in a row a lane and half a warp a row: x becomes the sums through each.
__device__ __forceinline__ void sum_half_warp(float4& x) {
  x.y += x.x, x.z += x.y, x.w += x.z;
  const float before = sum_before_lane<16>(x.w);
  x = {before + x.x, before + x.y, before + x.z, before + x.w};
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_LANES_CUH_
