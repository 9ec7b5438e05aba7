// Runs the kernels of the convolution's and the gated norm's gradients by the emulator.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/gradient_slab.cuh"
#include "cuda/kernels/gated_norm/gradient_rows.cuh"
#include "emulated_backend.hpp"

namespace sluice::cuda {
namespace {

/// CTA after CTA, from the last one on.
template <class Kernel, class Params>
int run_kernel(Kernel kernel, const Params& p, int64_t ctas, unsigned threads) {
  const auto count = static_cast<unsigned>(ctas);
  const auto work = [&] { kernel(p); };
  for (unsigned cta = count; cta-- > 0;) {
    if (!emulation::run_cta(cta, count, threads, emulation_seed + cta, work).empty()) return 1;
  }
  return 0;
}

}  // namespace

namespace conv1d {

alignas(1024) uint8_t dynamic_shared[device::kSumBytes];

void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept {
  const ConvGradientParams& p = gradients.params;
  const ConvGradientKernel slabs = kGradientKernels[static_cast<int>(gradients.form)];
  launcher.note(run_kernel(slabs, p, (p.warps + kWarps - 1) / kWarps, kThreads));
  if (p.sums == nullptr) return;
  const int64_t ctas = (kSums * p.forward.D + 31) / 32;
  launcher.note(run_kernel(sums_kernel, p, ctas, device::kSumThreads));
}

int load_gradient_kernels() noexcept { return 0; }

}  // namespace conv1d

namespace gated_norm {

alignas(1024) uint8_t dynamic_shared[kThreads * kPack * sizeof(float)];

void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept {
  const NormGradientParams& p = gradients.params;
  launcher.note(
      run_kernel(kGradientKernels[static_cast<int>(gradients.form)], p, p.ctas, kThreads));
  if (p.sums == nullptr) return;
  const int64_t ctas = (p.forward.V + 31) / 32;
  launcher.note(run_kernel(sums_kernel, p, ctas, device::kSumThreads));
}

int load_gradient_kernels() noexcept { return 0; }

}  // namespace gated_norm
}  // namespace sluice::cuda
