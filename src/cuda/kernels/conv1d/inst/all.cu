// Compiles, loads and launches the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/blocks.cuh"

namespace sluice::cuda::conv1d {

int load_kernels() noexcept {
  KernelLoader load;
  load(any_form_kernel);
  for (const Instances* kernels : kTypes) load(*kernels);
  return load.error();
}

void launch(const PlannedConv& conv, Launcher& launcher) noexcept {
  const GridSize& grid = conv.grid;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  launcher(kernel_of(conv), {grid, kThreads}, conv.params);
}

}  // namespace sluice::cuda::conv1d
