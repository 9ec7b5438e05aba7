// Compiles, loads and launches the kernels of state_fold, and what prepares a summary.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/context/fill.cuh"
#include "cuda/kernels/context/fold.cuh"
#include "cuda/kernels/context/launch.h"

namespace sluice::cuda::context {

int load_kernels() noexcept {
  KernelLoader load;
  load(device::address_of(fold_kernel), device::address_of(fill_kernel));
  return load.error();
}

void launch_fold(const FoldParams& p, Launcher& launcher) noexcept {
  const int64_t slices = (p.V + kAffineColumns - 1) / kAffineColumns;
  const int64_t ctas = p.N * p.HV * slices;
  if (ctas == 0) return;
  // WHY not as many bytes as K asks for: a grant is asked for from 48 KB on, without static ones.
  const int64_t rows = p.K <= 192 ? p.K : kMaxK;
  const size_t shared = sizeof(float) * 2 * kAffineColumns * static_cast<size_t>(rows);
  launcher(fold_kernel, {grid_of(ctas), kAffineThreads, shared}, p);
}

void launch_fill(const FillParams& p, Launcher& launcher) noexcept {
  const int64_t most = std::max({p.HV * p.K * p.K, p.N * p.HV, p.K});
  const int64_t ctas = std::clamp<int64_t>((most + kFillThreads - 1) / kFillThreads, 1, 1024);
  launcher(fill_kernel, {grid_of(ctas), kFillThreads}, p);
}

}  // namespace sluice::cuda::context
