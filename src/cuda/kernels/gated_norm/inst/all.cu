// Compiles, loads and launches the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/instances.cuh"

namespace sluice::cuda::gated_norm {

int load_kernels() noexcept {
  int error = load_kernel(any_form_kernel);
  for (int i = 0; i < kInstances && error == 0; ++i) {
    error = load_kernel(kKernels<Number::kBfloat16>[i]);
    if (error == 0) error = load_kernel(kKernels<Number::kFloat16>[i]);
  }
  return error;
}

void launch(const PlannedNorm& norm, Launcher& launcher) noexcept {
  if (norm.ctas > 0) launcher(kernel_of(norm), {{norm.ctas}, kThreads}, norm.params);
}

}  // namespace sluice::cuda::gated_norm
