// Runs chunk_stage of the CUDA backend on the CPU: its host code as it is, its kernels by the
// emulator; chunk_backward, whose kernels are in emulated_backward_backend.cc, too.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "core/backend.hpp"
#include "cuda/catalogues.h"
#include "cuda/kernels/chunk_h/kernel.cuh"
#include "cuda/kernels/chunk_h/launch.h"
#include "cuda/kernels/chunk_o/kernel.cuh"
#include "cuda/kernels/chunk_o/launch.h"
#include "cuda/kernels/stages/compact_cumsum.cuh"
#include "cuda/kernels/stages/compact_kkt.cuh"
#include "cuda/kernels/stages/compact_wy.cuh"
#include "cuda/kernels/stages/cumsum.cuh"
#include "cuda/kernels/stages/gla.cuh"
#include "cuda/kernels/stages/join.cuh"
#include "cuda/kernels/stages/kkt.cuh"
#include "cuda/kernels/stages/plain_chain.cuh"
#include "cuda/kernels/stages/scale_keys.cuh"
#include "cuda/kernels/stages/solve.cuh"
#include "cuda/kernels/stages/solve_wy.cuh"
#include "cuda/kernels/stages/states.cuh"
#include "cuda/kernels/stages/wy.cuh"
#include "cuda/machine.h"
#include "emulated_ctas.hpp"
#include "emulated_operator.hpp"

namespace sluice::cuda::chunk_forward {
alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}  // namespace sluice::cuda::chunk_forward

namespace sluice::cuda {

Machine machine_of(int device) noexcept { return {device, 90, 4, {2, 1}}; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace stages {

/// The array that the emulator knows, under the name that these kernels have for it.
extern uint8_t dynamic_shared[]
    __attribute__((alias("_ZN6sluice4cuda13chunk_forward14dynamic_sharedE"), aligned(1024)));

namespace {

using Function = void (*)(StageParams, int64_t);

template <class Io>
Function tile_function(Kernel kernel, bool wide, bool narrow, int C) {
  switch (kernel) {
    case Kernel::kSolveWy:
      return C == 128 ? solve_wy_kernel<Io, 128> : solve_wy_kernel<Io, 64>;
    case Kernel::kKkt:
      return kkt_kernel<Io>;
    case Kernel::kWy:
      return wy_kernel<Io>;
    case Kernel::kOutputs:
      return outputs_kernel<Io>;
    case Kernel::kStates:
      if (narrow) return wide ? states_kernel<Io, 2, 2> : states_kernel<Io, 1, 2>;
      return wide ? states_kernel<Io, 2, 4> : states_kernel<Io, 1, 4>;
    case Kernel::kKeyStates:
      return wide ? states_kernel<Io, 2, 2, true> : states_kernel<Io, 1, 2, true>;
    default:
      return wide ? gla_kernel<Io, 2> : gla_kernel<Io, 1>;
  }
}

template <int C>
Function solver(Kernel kernel) {
  return kernel == Kernel::kSolve ? solve_kernel<C> : plain_solve_wy_kernel<C>;
}

Function plain_function(Kernel kernel, const StageParams& p) {
  const int C = p.C;
  switch (kernel) {
    case Kernel::kPlainKkt:
      return plain_kkt_kernel;
    case Kernel::kPlainWy:
      return plain_wy_kernel;
    case Kernel::kPlainChain:
      return p.key_gates ? plain_chain_kernel<true> : plain_chain_kernel<false>;
    case Kernel::kPlainOutputs:
      return p.key_gates ? plain_outputs_kernel<true> : plain_outputs_kernel<false>;
    case Kernel::kJoin:
      return join_kernel;
    case Kernel::kScaleKeys:
      return scale_keys_kernel;
    default:
      return C == 16   ? solver<16>(kernel)
             : C == 32 ? solver<32>(kernel)
             : C == 64 ? solver<64>(kernel)
                       : solver<128>(kernel);
  }
}

Function function_of(Kernel kernel, const StageParams& p) {
  if (is_plain(kernel)) return plain_function(kernel, p);
  const bool wide = p.K == 128, narrow = p.columns < kColumns;
  return p.k.number == Number::kBfloat16 ? tile_function<__nv_bfloat16>(kernel, wide, narrow, p.C)
                                         : tile_function<__half>(kernel, wide, narrow, p.C);
}

/// CTAs one after the other: what kernels name by its shared address there is once.
template <class Params>
int run_compact(void (*function)(Params), const Params& params, const CompactLaunch& launch,
                int threads) {
  static uint64_t seed = 1;
  std::fill_n(chunk_forward::dynamic_shared, emulation::kSharedBytes, uint8_t{0xFF});
  const emulation::Grid grid{.ctas = launch.heads * launch.chunks * launch.batch,
                             .threads = static_cast<unsigned>(threads),
                             .resident = 1,
                             .x = launch.heads,
                             .y = launch.chunks};
  const std::string trouble = emulation::run_grid(grid, ++seed, [&] { function(params); });
  if (!trouble.empty()) std::fprintf(stderr, "emulation: %s\n", trouble.c_str());
  return trouble.empty() && within(launch.shared_bytes) ? 0 : 1;
}

/// -1: there is no compact kernel for the problem.
int launch_compact(Kernel kernel, const StageParams& params) {
  CompactLaunch launch{};
  if (kernel == Kernel::kCumsum) {
    CompactSumParams compact;
    if (!plan_compact_sums(params, &compact, &launch)) return -1;
    return run_compact(compact_cumsum_kernel, compact, launch, kCompactSumThreads);
  }
  CompactParams compact;
  if (!plan_compact(kernel, params, &compact, &launch)) return -1;
  const bool keys = kernel == Kernel::kKkt, is_bf16 = params.k.number == Number::kBfloat16;
  const auto function =
      keys ? (is_bf16 ? compact_kkt_kernel<__nv_bfloat16> : compact_kkt_kernel<__half>)
           : (is_bf16 ? compact_wy_kernel<__nv_bfloat16> : compact_wy_kernel<__half>);
  return run_compact(function, compact, launch, kBlockThreads);
}

}  // namespace

void launch(Kernel kernel, const StageParams& params, Launcher& launcher,
            const SumGates& gates) noexcept {
  if (!launcher.ok()) return;
  const bool log = gates.form == device::GateForm::kLog, sums = kernel == Kernel::kCumsum;
  const int error = log ? launch_compact(kernel, params) : -1;
  if (error >= 0) return launcher.note(error);
  const Launch plan = plan_launch(kernel, params);
  const Function function = sums ? nullptr : function_of(kernel, params);
  launcher.note(run_ctas(plan.items, plan.threads, plan.shared_bytes, [&] {
    sums ? cumsum_kernel(params, gates, plan.items) : function(params, plan.items);
  }));
}

int load_kernels() noexcept { return 0; }

}  // namespace stages

namespace backward {

extern uint8_t dynamic_shared[]
    __attribute__((alias("_ZN6sluice4cuda13chunk_forward14dynamic_sharedE"), aligned(1024)));

}  // namespace backward

namespace chunk_o {
namespace {

template <class C>
int run(const OutputParams& p, int64_t items) {
  return run_persistent(chunk_o_kernel<C>, p, items, C::kThreads);
}

template <class Io>
int run_sizes(const OutputParams& p, int64_t items) {
  const bool wide = columns_of(p.stage.V) == 128;
  if (p.stage.K == 128) {
    return wide ? run<Config<Io, 128, 128>>(p, items) : run<Config<Io, 128, 64>>(p, items);
  }
  return wide ? run<Config<Io, 64, 128>>(p, items) : run<Config<Io, 64, 64>>(p, items);
}

}  // namespace

void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept {
  if (!launcher.ok()) return;
  const int columns = columns_of(params.V);
  const int64_t slots = device::chunk_slots(params);
  const int64_t items = slots * params.HV * (params.V / columns);
  const OutputParams p{emulated_map(tensors.q, 64, params.K),
                       emulated_map(tensors.k, 64, params.K),
                       emulated_map(tensors.v, 64, columns),
                       emulated_map(tensors.o, 64, columns),
                       emulated_map(tensors.h, static_cast<uint32_t>(params.K), columns),
                       params,
                       h_per_batch};
  launcher.note(tensors.q.is_bf16 ? run_sizes<__nv_bfloat16>(p, items)
                                  : run_sizes<__half>(p, items));
}

int load_kernels() noexcept { return 0; }

}  // namespace chunk_o

namespace chunk_h {
namespace {

template <class C>
int run(const StatesParams& p, int64_t items) {
  return run_persistent(chunk_h_kernel<C>, p, items, C::kThreads);
}

template <class Io>
int run_sizes(const StatesParams& p, int64_t items, bool wide) {
  if (p.stage.K == 128) {
    return wide ? run<Config<Io, 128, 128>>(p, items) : run<Config<Io, 128, 64>>(p, items);
  }
  return wide ? run<Config<Io, 64, 128>>(p, items) : run<Config<Io, 64, 64>>(p, items);
}

}  // namespace

void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept {
  if (!launcher.ok()) return;
  const int columns = columns_of(params, launcher.machine().multiprocessors);
  const int64_t items = params.N * params.HV * (params.V / columns);
  const StatesParams p{emulated_map(tensors.k, 64, params.K),
                       emulated_map(tensors.w, 64, params.K),
                       emulated_map(tensors.u, 64, 64),
                       emulated_map(tensors.v_new, 64, 64),
                       emulated_map(tensors.h, static_cast<uint32_t>(params.K), 64),
                       params,
                       h_per_batch};
  launcher.note(tensors.k.is_bf16 ? run_sizes<__nv_bfloat16>(p, items, columns == 128)
                                  : run_sizes<__half>(p, items, columns == 128));
}

int load_kernels() noexcept { return 0; }

}  // namespace chunk_h

const core::Backend& backend() noexcept {
  static const core::Backend instance = [] {
    core::Backend made{};
    made.id = SLUICE_IMPL_CUDA;
    made.name = "cuda";
    made.description = "the stages, emulated";
    made.requirement = "nothing";
    made.device_type = SLUICE_DEVICE_CUDA;
    made.available = []() noexcept { return true; };
    made.chunk_backward = emulated_operator<chunk_backward_catalogue>();
    made.chunk_stage = emulated_operator<chunk_stage_catalogue>();
    return made;
  }();
  return instance;
}

}  // namespace sluice::cuda
