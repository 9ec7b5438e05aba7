// The planner: orders sequences longest first, on the device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLAN_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLAN_CUH_

#include "cuda/kernels/chunk_forward/work.cuh"

namespace sluice::cuda::chunk_forward {

inline constexpr int kPlanThreads = 1024;
/// Exact below 16 chunks, eight buckets an octave above: 16 + 8 * (25 - 4) + 7 < 192.
inline constexpr int kBuckets = 192;

/// Bucket of a sequence of `chunks` chunks; longer sequences have larger buckets.
SLUICE_HOST_DEVICE int length_bucket(uint32_t chunks) {
  if (chunks < 16) return static_cast<int>(chunks);
  int octave = 4;
  while (octave < 25 && (chunks >> (octave + 1)) != 0) ++octave;
  return 16 + 8 * (octave - 4) + static_cast<int>((chunks >> (octave - 3)) & 7u);
}

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
    const int64_t begin = min(max(load_index(cu_seqlens, n), int64_t{0}), int64_t{T});
    const int64_t end = min(max(load_index(cu_seqlens, n + 1), begin), int64_t{T});
    return length_bucket(static_cast<uint32_t>((end - begin + 63) / 64));
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
