// Computes on lengths for the planner, as host and device code.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_SEGMENT_ORDER_HPP_
#define SLUICE_CUDA_DEVICE_SEGMENT_ORDER_HPP_

#include <cstdint>

#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::device {

/// Exact below 16 chunks, eight buckets an octave above: 16 + 8 * (25 - 4) + 7 < 192.
inline constexpr int kBuckets = 192;

/// Bucket of a sequence of `chunks` chunks; longer sequences have larger buckets.
SLUICE_HOST_DEVICE constexpr int length_bucket(uint32_t chunks) {
  if (chunks < 16) return static_cast<int>(chunks);
  int octave = 4;
  while (octave < 25 && (chunks >> (octave + 1)) != 0) ++octave;
  return 16 + 8 * (octave - 4) + static_cast<int>((chunks >> (octave - 3)) & 7u);
}

/// Chunks of rows begin .. end - 1 within 0 .. T - 1, whatever begin and end are.
SLUICE_HOST_DEVICE constexpr uint32_t chunks_between(int64_t begin, int64_t end, int64_t T) {
  const int64_t from_zero = begin > 0 ? begin : 0;
  const int64_t first = from_zero < T ? from_zero : T;
  const int64_t from_first = end > first ? end : first;
  const int64_t last = from_first < T ? from_first : T;
  return static_cast<uint32_t>((last - first + 63) / 64);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_SEGMENT_ORDER_HPP_
