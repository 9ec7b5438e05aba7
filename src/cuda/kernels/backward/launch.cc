// Launches the kernels of chunk_backward: finds the instance of a problem and its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/launch.h"

#include <algorithm>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {
namespace {

/// What an instance depends on.
struct Variant {
  bool is_bf16, narrow;  ///< narrow: instances.h
};

const void* function_of(Kernel kernel, Variant v) noexcept {
  switch (kernel) {
    case Kernel::kPrepare:
      return prepare(v.narrow);
    case Kernel::kLocal:
      return local();
    case Kernel::kChain:
      return chain();
    case Kernel::kGradients:
      return gradients();
    case Kernel::kKeys:
      return keys_of_heads(v.narrow);
    case Kernel::kLocalTiles:
      return v.is_bf16 ? bf16_local() : fp16_local();
    case Kernel::kChainTiles:
      return v.is_bf16 ? bf16_chain(v.narrow) : fp16_chain(v.narrow);
    case Kernel::kGradientTiles:
      return v.is_bf16 ? bf16_gradients() : fp16_gradients();
    default:
      return head_sums();
  }
}

Variant variant_of(Kernel kernel, const BackwardParams& p) noexcept {
  const bool narrow =
      kernel == Kernel::kChainTiles ? p.stage.columns < device::kColumns : p.stage.K <= kNarrowK;
  return {p.d_o.number == Number::kBfloat16, narrow};
}

constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

}  // namespace

int load_kernels() noexcept {
  int error = 0;
  for (int i = 0; i < 4 * kKernels && error == 0; ++i) {
    const Variant variant{i % 2 != 0, i / 2 % 2 != 0};
    error = load_kernel(function_of(static_cast<Kernel>(i / 4), variant));
  }
  for (const void* function : {key_tokens(), key_sums()}) {
    if (error == 0) error = load_kernel(function);
  }
  return error;
}

void launch(Kernel kernel, const BackwardParams& params, Launcher& launcher) noexcept {
  const Launch plan = plan_launch(kernel, params);
  if (plan.items == 0) return;
  const int64_t most =
      kernel == Kernel::kGradientTiles ? launcher.machine().multiprocessors : kMaxGrid;
  launcher(function_of(kernel, variant_of(kernel, params)),
           {{static_cast<unsigned>(std::min(plan.items, most))},
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
