// Runs the kernels of the convolution's and the gated norm's gradients by the emulator.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/gradient_slab.cuh"
#include "cuda/kernels/gated_norm/gradient_rows.cuh"
#include "emulated_backend.hpp"

namespace sluice::cuda {
namespace {

constexpr unsigned kSumThreads = device::kSumWarps * 32;

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

namespace conv1d_backward {

alignas(1024) uint8_t dynamic_shared[kSumThreads * sizeof(float)];

void launch(Form form, const ConvGradientParams& p, Launcher& launcher) noexcept {
  launcher.note(run_kernel(kernel_of(form), p, (p.warps + kWarps - 1) / kWarps, kThreads));
  if (p.sums == nullptr) return;
  const int64_t ctas = (kSums * p.forward.D + 31) / 32;
  launcher.note(run_kernel(sums_kernel, p, ctas, kSumThreads));
}

int load_kernels() noexcept { return 0; }

}  // namespace conv1d_backward

namespace gated_norm_backward {

alignas(1024) uint8_t dynamic_shared[kThreads * kPack * sizeof(float)];

void launch(Form form, const NormGradientParams& p, Launcher& launcher) noexcept {
  launcher.note(run_kernel(kernel_of(form), p, p.ctas, kThreads));
  if (p.sums == nullptr) return;
  const int64_t ctas = (p.forward.V + 31) / 32;
  launcher.note(run_kernel(sums_kernel, p, ctas, kSumThreads));
}

int load_kernels() noexcept { return 0; }

}  // namespace gated_norm_backward
}  // namespace sluice::cuda
