// The planner: orders sequences longest first, on the device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLAN_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLAN_CUH_

#include "cuda/kernels/chunk_forward/plan_order.hpp"
#include "cuda/kernels/chunk_forward/work.cuh"

namespace sluice::cuda::chunk_forward {

inline constexpr int kPlanThreads = 1024;

/// Counting sort of the sequences by falling length bucket into `order`; zeroes the ticket. One
/// CTA.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(IndexVector cu_seqlens, int32_t N, int32_t T, int32_t* order, uint32_t* ticket) {
  __shared__ int counts[kBuckets];
  ptx::launch_dependents();
  for (int b = static_cast<int>(threadIdx.x); b < kBuckets; b += kPlanThreads) counts[b] = 0;
  if (threadIdx.x == 0) *ticket = 0;
  __syncthreads();
  const auto bucket_of = [&](int n) {
    return length_bucket(
        chunks_between(load_index(cu_seqlens, n), load_index(cu_seqlens, n + 1), T));
  };
  for (int n = static_cast<int>(threadIdx.x); n < N; n += kPlanThreads) {
    atomicAdd(&counts[bucket_of(n)], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int first = 0;
    for (int b = kBuckets - 1; b >= 0; --b) {
      const int count = counts[b];
      counts[b] = first;
      first += count;
    }
  }
  __syncthreads();
  for (int n = static_cast<int>(threadIdx.x); n < N; n += kPlanThreads) {
    order[atomicAdd(&counts[bucket_of(n)], 1)] = n;
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLAN_CUH_
