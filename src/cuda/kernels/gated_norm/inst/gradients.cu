// Compiles, loads and launches the kernels of the gated norm's gradients.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/gradient_rows.cuh"

namespace sluice::cuda::gated_norm_backward {

int load_kernels() noexcept {
  int error = load_kernel(sums_kernel);
  for (const Form form : {Form::kAny, Form::kBfloat16, Form::kFloat16}) {
    if (error == 0) error = load_kernel(kernel_of(form));
  }
  return error;
}

void launch(Form form, const NormGradientParams& p, Launcher& launcher) noexcept {
  // Sums of all groups of lanes, eight numbers a lane.
  const LaunchShape rows{
      {static_cast<unsigned>(p.ctas)}, kThreads, kThreads * kPack * sizeof(float)};
  if (p.ctas > 0) launcher(kernel_of(form), rows, p);
  if (p.sums == nullptr) return;
  const LaunchShape shape{{static_cast<unsigned>((p.forward.V + 31) / 32)},
                          device::kSumWarps * 32,
                          device::kSumWarps * 32 * sizeof(float)};
  launcher(sums_kernel, shape, p);
}

}  // namespace sluice::cuda::gated_norm_backward
