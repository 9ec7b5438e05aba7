// Compiles the kernel that gathers offsets and slots for the host to check.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/indices/params.h"

namespace sluice::cuda::indices {

template <class Integer>
__device__ __forceinline__ void copy(const Gathered& view, int64_t i) {
  const int64_t row = i / view.columns, column = i - row * view.columns;
  static_cast<Integer*>(view.to)[i] =
      static_cast<const Integer*>(view.from)[row * view.row_stride + column * view.column_stride];
}

__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherParams p) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int v = 0; v < p.count; ++v) {
    const Gathered& view = p.views[v];
    for (int64_t i = first; i < view.count; i += int64_t{gridDim.x} * kThreads) {
      if (view.is_64bit) {
        copy<int64_t>(view, i);
      } else {
        copy<int32_t>(view, i);
      }
    }
  }
}

const void* gather() noexcept { return reinterpret_cast<const void*>(gather_kernel); }

}  // namespace sluice::cuda::indices
