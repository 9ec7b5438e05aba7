// Compiles, loads and launches the kernels of the gated norm's gradients.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/gradient_rows.cuh"

namespace sluice::cuda::gated_norm {

int load_gradient_kernels() noexcept {
  KernelLoader load;
  load(kGradientKernels);
  return load.error();
}

void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept {
  const NormGradientParams& p = gradients.params;
  // Sums of all groups of lanes, eight numbers a lane.
  const LaunchShape rows{
      {static_cast<unsigned>(p.ctas)}, kThreads, kThreads * kPack * sizeof(float)};
  if (p.ctas > 0) launcher(kGradientKernels[static_cast<int>(gradients.form)], rows, p);
  if (p.sums == nullptr) return;
  const auto sums = static_cast<unsigned>((p.forward.V + 31) / 32);
  launcher(sums_kernel, {{sums}, device::kSumThreads, device::kSumBytes}, p);
}

}  // namespace sluice::cuda::gated_norm
