// Launches the stage kernels: finds the instance of a problem and the size of its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/launch.h"

#include <initializer_list>

#include "cuda/kernels/stages/compact.h"
#include "cuda/kernels/stages/config.h"
#include "cuda/kernels/stages/instances.h"

namespace sluice::cuda::stages {
namespace {

constexpr int kKernels = static_cast<int>(Kernel::kGla) + 1;

const void* function_of(Kernel kernel, const Variant& variant) noexcept {
  switch (kernel) {
    case Kernel::kSolve:
    case Kernel::kPlainSolveWy:
      return solve_instance(kernel, variant);
    case Kernel::kScaleKeys:
    case Kernel::kKeyStates:
      return key_state_instance(kernel, variant);
    default:
      if (is_plain(kernel)) return plain_instance(kernel, variant);
      return variant.is_bf16 ? bf16_instance(kernel, variant) : fp16_instance(kernel, variant);
  }
}

LaunchShape shape_of(const CompactLaunch& launch, unsigned threads) noexcept {
  return {{launch.heads, launch.chunks, launch.batch},
          threads,
          static_cast<size_t>(launch.shared_bytes)};
}

/// Launches the instance of fixed sizes if there is one for the problem.
bool launch_compact(Kernel kernel, const StageParams& params, Launcher& launcher) noexcept {
  CompactLaunch launch{};
  if (kernel == Kernel::kCumsum) {
    CompactSumParams compact;
    if (!plan_compact_sums(params, &compact, &launch)) return false;
    launcher(compact_cumsum(), shape_of(launch, kCompactSumThreads), compact);
    return true;
  }
  CompactParams compact;
  if (!plan_compact(kernel, params, &compact, &launch)) return false;
  const bool is_bf16 = params.k.number == Number::kBfloat16;
  launcher(kernel == Kernel::kKkt ? compact_kkt(is_bf16) : compact_wy(is_bf16),
           shape_of(launch, kBlockThreads), compact);
  return true;
}

}  // namespace

int load_kernels() noexcept {
  KernelLoader load;
  load(compact_cumsum());
  for (const bool is_bf16 : {true, false}) load(compact_kkt(is_bf16), compact_wy(is_bf16));
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    for (int i = 0; i < 16; ++i) {
      const Variant variant{i % 2 != 0, i / 2 % 2 != 0, i / 4 % 2 != 0, i / 8 != 0, 16 << i % 4};
      load(function_of(static_cast<Kernel>(kernel), variant));
    }
  }
  return load.error();
}

void launch(Kernel kernel, const StageParams& params, Launcher& launcher,
            const SumGates& gates) noexcept {
  const Launch plan = plan_launch(kernel, params);
  const bool log = gates.form == device::GateForm::kLog;
  if (plan.items == 0 || (log && launch_compact(kernel, params, launcher))) return;
  const Variant variant{params.k.number == Number::kBfloat16, params.K == 128,
                        params.columns < kColumns, params.key_gates, params.C};
  const int64_t ctas = grid_of(kernel, plan.items, launcher.machine().multiprocessors);
  const LaunchShape shape{cuda::grid_of(ctas), static_cast<unsigned>(plan.threads),
                          static_cast<size_t>(plan.shared_bytes)};
  const void* const function = function_of(kernel, variant);
  if (kernel == Kernel::kCumsum) return launcher(function, shape, params, gates, plan.items);
  launcher(function, shape, params, plan.items);
}

}  // namespace sluice::cuda::stages
