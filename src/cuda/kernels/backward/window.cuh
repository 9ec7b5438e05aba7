// Finds which chunks a launch of chunk_backward computes where that goes by windows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/window.h"

namespace sluice::cuda::backward {

/// Whether a launch computes a chunk.
__device__ __forceinline__ bool is_inside(const Window& window, const device::Chunk& chunk) {
  return !window.exists() || (chunk.row >= window.first && chunk.row < window.end);
}

/// Where S and D' of the chunk that begins at a row lie among those of a window: chunk slots, as
/// span_of() has them.
__device__ __forceinline__ int64_t state_in_window(const Window& window, int64_t seq, int64_t row) {
  return row / kTokens + seq - window.first / kTokens;
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_CUH_
