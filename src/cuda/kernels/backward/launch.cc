// Launches the kernels of chunk_backward: finds the instance of a problem and its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/launch.h"

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {
int load_kernels() noexcept {
  KernelLoader load;
  for (int i = 0; i < 2 * kKernels; ++i) {
    load(plain_instance(static_cast<Kernel>(i / 2), i % 2 != 0));
  }
  load(key_tokens(), key_sums());
  return load.error();
}

void launch(Kernel kernel, const BackwardParams& params, Launcher& launcher) noexcept {
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return;
  launcher(plain_instance(kernel, params.stage.K <= kNarrowK),
           {grid_of(plan.items), static_cast<unsigned>(plan.threads),
            static_cast<size_t>(plan.shared_bytes)},
           params, plan.items);
}

void launch_key_wise(const KeyBackwardParams& params, Launcher& launcher) noexcept {
  const StageParams& p = params.all.stage;
  const int64_t items = p.N * p.HV;
  if (items > 0) {
    launcher(key_tokens(),
             {grid_of(items), unsigned{kKeyThreads}, static_cast<size_t>(key_bytes(p.K, p.V))},
             params, items);
  }
  if (params.bias_parts == nullptr && params.rate_parts == nullptr) return;
  launcher(key_sums(), {grid_of(p.HV), unsigned{kKeyThreads}}, params, p.HV);
}

}  // namespace sluice::cuda::backward
