// Launches the kernels of chunk_backward: finds the instance of a problem and its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/launch.h"

#include <algorithm>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {
namespace {

/// narrow: instances.h.
const void* function_of(Kernel kernel, bool narrow) noexcept {
  switch (kernel) {
    case Kernel::kPrepare:
      return prepare(narrow);
    case Kernel::kLocal:
      return local();
    case Kernel::kChain:
      return chain();
    case Kernel::kGradients:
      return gradients();
    case Kernel::kKeys:
      return keys_of_heads(narrow);
    case Kernel::kHeadSums:
      return head_sums();
    default:
      return chunk_sums();
  }
}

constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

}  // namespace

int load_kernels() noexcept {
  int error = 0;
  for (int i = 0; i < 2 * kKernels && error == 0; ++i) {
    error = load_kernel(function_of(static_cast<Kernel>(i / 2), i % 2 != 0));
  }
  for (const void* function : {key_tokens(), key_sums()}) {
    if (error == 0) error = load_kernel(function);
  }
  return error;
}

void launch(Kernel kernel, const BackwardParams& params, Launcher& launcher) noexcept {
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return;
  launcher(function_of(kernel, params.stage.K <= kNarrowK),
           {{static_cast<unsigned>(std::min(plan.items, kMaxGrid))},
            static_cast<unsigned>(plan.threads),
            static_cast<size_t>(plan.shared_bytes)},
           params, plan.items);
}

void launch_key_wise(const KeyBackwardParams& params, Launcher& launcher) noexcept {
  const StageParams& p = params.all.stage;
  const int64_t items = p.N * p.HV;
  if (items > 0) {
    launcher(key_tokens(),
             {{static_cast<unsigned>(std::min(items, kMaxGrid))},
              static_cast<unsigned>(kKeyThreads),
              static_cast<size_t>(key_bytes(p.K, p.V))},
             params, items);
  }
  if (params.bias_parts == nullptr && params.rate_parts == nullptr) return;
  launcher(key_sums(),
           {{static_cast<unsigned>(std::min(p.HV, kMaxGrid))}, static_cast<unsigned>(kKeyThreads)},
           params, p.HV);
}

}  // namespace sluice::cuda::backward
