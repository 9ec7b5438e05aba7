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

/// What chooses between the instances of a kernel. wide: K = 128, narrow: 32 columns of chunk_h in
/// place of 64.
struct Variant {
  bool is_bf16, wide, narrow, key_wise;
  int C;
};

const void* plain_function(Kernel kernel, const Variant& variant) noexcept {
  const int C = variant.C;
  switch (kernel) {
    case Kernel::kCumsum:
      return cumsum();
    case Kernel::kSolve:
      return solve(C);
    case Kernel::kPlainKkt:
      return plain_kkt();
    case Kernel::kPlainWy:
      return plain_wy();
    case Kernel::kPlainSolveWy:
      return plain_solve_wy(C);
    case Kernel::kPlainChain:
      return plain_chain(variant.key_wise);
    case Kernel::kPlainOutputs:
      return plain_outputs(variant.key_wise);
    case Kernel::kScaleKeys:
      return scale_keys();
    default:
      return join();
  }
}

const void* function_of(Kernel kernel, const Variant& variant) noexcept {
  const bool is_bf16 = variant.is_bf16, wide = variant.wide, narrow = variant.narrow;
  const int C = variant.C;
  switch (kernel) {
    case Kernel::kKkt:
      return is_bf16 ? bf16_kkt() : fp16_kkt();
    case Kernel::kWy:
      return is_bf16 ? bf16_wy() : fp16_wy();
    case Kernel::kSolveWy:
      return is_bf16 ? bf16_solve_wy(C) : fp16_solve_wy(C);
    case Kernel::kOutputs:
      return is_bf16 ? bf16_outputs() : fp16_outputs();
    case Kernel::kStates:
      return is_bf16 ? bf16_states(wide, narrow) : fp16_states(wide, narrow);
    case Kernel::kKeyStates:
      return is_bf16 ? bf16_key_states(wide) : fp16_key_states(wide);
    case Kernel::kGla:
      return is_bf16 ? bf16_gla(wide) : fp16_gla(wide);
    default:
      return plain_function(kernel, variant);
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
  int error = 0;
  for (const void* function : {compact_cumsum(), compact_kkt(true), compact_kkt(false),
                               compact_wy(true), compact_wy(false)}) {
    if (error == 0) error = load_kernel(function);
  }
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    for (int i = 0; i < 16 && error == 0; ++i) {
      const Variant variant{i % 2 != 0, i / 2 % 2 != 0, i / 4 % 2 != 0, i / 8 != 0, 16 << i % 4};
      error = load_kernel(function_of(static_cast<Kernel>(kernel), variant));
    }
  }
  return error;
}

void launch(Kernel kernel, const StageParams& params, Launcher& launcher,
            const SumGates& gates) noexcept {
  const Launch plan = plan_launch(kernel, params);
  const bool log = gates.form == device::GateForm::kLog;
  if (plan.items == 0 || (log && launch_compact(kernel, params, launcher))) return;
  const Variant variant{params.k.number == Number::kBfloat16, params.K == 128,
                        params.columns < kColumns, params.key_gates, params.C};
  const int64_t ctas = grid_of(kernel, plan.items, launcher.machine().multiprocessors);
  const LaunchShape shape{{static_cast<unsigned>(ctas)},
                          static_cast<unsigned>(plan.threads),
                          static_cast<size_t>(plan.shared_bytes)};
  const void* const function = function_of(kernel, variant);
  if (kernel == Kernel::kCumsum) return launcher(function, shape, params, gates, plan.items);
  launcher(function, shape, params, plan.items);
}

}  // namespace sluice::cuda::stages
