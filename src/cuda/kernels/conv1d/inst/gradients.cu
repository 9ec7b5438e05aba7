// Compiles, loads and launches the kernels of the convolution's gradients.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/gradient_slab.cuh"

namespace sluice::cuda::conv1d_backward {

int load_kernels() noexcept {
  int error = load_kernel(sums_kernel);
  for (const Form form : {Form::kAny, Form::kBfloat16, Form::kFloat16}) {
    if (error == 0) error = load_kernel(kernel_of(form));
  }
  return error;
}

void launch(Form form, const ConvGradientParams& p, Launcher& launcher) noexcept {
  const auto ctas = static_cast<unsigned>((p.warps + kWarps - 1) / kWarps);
  if (ctas > 0) launcher(kernel_of(form), {{ctas}, kThreads}, p);
  if (p.sums == nullptr) return;
  const auto columns = static_cast<unsigned>((kSums * p.forward.D + 31) / 32);
  const LaunchShape shape{
      {columns}, device::kSumWarps * 32, device::kSumWarps * 32 * sizeof(float)};
  launcher(sums_kernel, shape, p);
}

}  // namespace sluice::cuda::conv1d_backward
