// What launches of the plain kernels depend on besides their parameters.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TARGET_H_
#define SLUICE_CUDA_TARGET_H_

#include "cuda/gpu.h"

namespace sluice::cuda {

struct Target {
  int multiprocessors = 0;
  bool follows = false;  ///< may begin while the kernel ahead ends: from Hopper on
};

inline Target target_of(int device) noexcept {
  return {multiprocessors(device), compute_capability(device) >= 90};
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_TARGET_H_
