// Compiles, loads and launches the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/instances.cuh"

namespace sluice::cuda::conv1d {

int load_kernels() noexcept {
  int error = load_kernel(any_form_kernel);
  for (const bool bfloats : {true, false}) {
    for (const bool float_weights : {false, true}) {
      for (int i = 0; i < kInstances && error == 0; ++i) {
        error = load_kernel(kernels_of(bfloats, float_weights)[i]);
      }
    }
  }
  return error;
}

void launch(const PlannedConv& conv, Launcher& launcher) noexcept {
  const GridSize& grid = conv.grid;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  launcher(kernel_of(conv), {grid, kThreads}, conv.params);
}

}  // namespace sluice::cuda::conv1d
