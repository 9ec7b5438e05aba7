// Launches the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/pieces.h"

namespace sluice::cuda::gated_norm {
namespace {

/// By Kernel.
constexpr const void* (*kKernels[])() noexcept = {
    four_bfloats,        four_halves,        one_bfloats,        one_halves,    even_bfloats_of_128,
    even_bfloats_of_256, even_halves_of_128, even_halves_of_256, rows_by_packs, rows_by_elements};

}  // namespace

int load_kernels() noexcept {
  int error = 0;
  for (const auto kernel : kKernels) {
    if (error == 0) error = load_kernel(kernel());
  }
  return error;
}

void launch(const NormParams& params, Launcher& launcher) noexcept {
  in_pieces(params, kMaxRows, [&](NormParams p) {
    const Kernel kernel = plan_launch(launcher.machine().multiprocessors, &p);
    launcher(kKernels[static_cast<int>(kernel)](), {{ctas_of(kernel, p)}, kThreads}, p);
  });
}

}  // namespace sluice::cuda::gated_norm
