// Compiles, loads and launches the kernels of the convolution's gradients.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/gradient_slab.cuh"

namespace sluice::cuda::conv1d {

int load_gradient_kernels() noexcept {
  KernelLoader load;
  load(kGradientKernels);
  return load.error();
}

void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept {
  const ConvGradientParams& p = gradients.params;
  const auto ctas = static_cast<unsigned>((p.warps + kWarps - 1) / kWarps);
  if (ctas > 0) launcher(kGradientKernels[static_cast<int>(gradients.form)], {{ctas}, kThreads}, p);
  if (p.sums == nullptr) return;
  const auto sums = static_cast<unsigned>((kSums * p.forward.D + 31) / 32);
  launcher(sums_kernel, {{sums}, device::kSumThreads, device::kSumBytes}, p);
}

}  // namespace sluice::cuda::conv1d
