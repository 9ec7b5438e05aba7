// Describes the windows of chunks that a chunk_backward is computed in, for host and kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_H_

#include <cstdint>

#include "cuda/kernels/backward/config.h"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::backward {

/// The chunks that a launch computes: those whose first row is one of a window's. The workspace holds
/// rows and states of a window's chunks alone; places of rows are such that a row has the same number
/// everywhere. All zeros: there are no windows, and a launch computes all chunks.
struct Window {
  int64_t first, end;  ///< rows; multiples of a chunk's
  /// [HV,K,V] float32, what is passed on at the borders to the windows before and behind this one. A
  /// border lies in one sequence at most: first it has the sequence's state, then, when the window
  /// behind it has used that, the gradient.
  float *before, *after;
  bool sends;  ///< whether chains store states and rows; else they only pass the state on

  SLUICE_HOST_DEVICE bool exists() const noexcept { return end > 0; }
};

/// Rows from a window's first on that its chunks may have: those of a pack begin anywhere.
SLUICE_HOST_DEVICE int64_t window_rows(const Window& window, bool packed) noexcept {
  return window.end - window.first + (packed ? kTokens : 0);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_WINDOW_H_
