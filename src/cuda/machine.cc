// Asks the driver, once per GPU, what plans depend on.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/machine.h"

#include "cuda/gpu.h"

namespace sluice::cuda {

Machine machine_of(int device) noexcept {
  return {device, compute_capability(device), multiprocessors(device), resident_clusters(device)};
}

}  // namespace sluice::cuda
