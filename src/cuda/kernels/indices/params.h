// Describes a call to the kernel that gathers integers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_INDICES_PARAMS_H_
#define SLUICE_CUDA_KERNELS_INDICES_PARAMS_H_

#include <cstdint>

namespace sluice::cuda::indices {

inline constexpr int kMostViews = 9, kThreads = 256;

/// Integers of a view, and where they go, densely: host memory that the GPU sees.
struct Gathered {
  const void* from;
  void* to;
  int64_t count, columns, row_stride, column_stride;  ///< elements
  bool is_64bit;
};

struct GatherParams {
  Gathered views[kMostViews];
  int32_t count;
};

/// The kernel, which takes one GatherParams.
const void* gather() noexcept;

}  // namespace sluice::cuda::indices

#endif  // SLUICE_CUDA_KERNELS_INDICES_PARAMS_H_
