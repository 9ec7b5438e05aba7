// Compiles, loads and launches the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/forward_rows.cuh"

namespace sluice::cuda::gated_norm {

int load_kernels() noexcept {
  KernelLoader load;
  load(any_form_kernel);
  load(kKernels<Number::kBfloat16>);
  load(kKernels<Number::kFloat16>);
  return load.error();
}

void launch(const PlannedNorm& norm, Launcher& launcher) noexcept {
  if (norm.ctas > 0) launcher(kernel_of(norm), {{norm.ctas}, kThreads}, norm.params);
}

}  // namespace sluice::cuda::gated_norm
