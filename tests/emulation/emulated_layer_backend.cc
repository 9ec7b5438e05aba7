// Runs the convolution, the gated norm and layer_prefill of the CUDA backend on the CPU: their host
// code as it is, their kernels by the emulator. The delta rule between them is the fused kernel,
// emulated, where that applies, else the float64 reference in place of the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include "core/backend.hpp"
#include "cuda/catalogues.h"
#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/channel_first.cuh"
#include "cuda/kernels/conv1d/channel_last.cuh"
#include "cuda/kernels/conv1d/update.cuh"
#include "cuda/kernels/gated_norm/any_form.cuh"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/gated_norm/one_type.cuh"
#include "cuda/kernels/gated_norm/parts.h"
#include "cuda/layer_prefill/delta_rule.h"
#include "cuda/machine.h"
#include "emulated_backend.hpp"
#include "emulated_operator.hpp"

namespace sluice::cuda {

Machine machine_of(int device) noexcept { return {device, 90, 4, {}}; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace conv1d {
namespace {

template <class Pack>
ConvKernel kernel_of(Form form, const ConvParams& p) {
  if (form == Form::kAny) return any_form_kernel;
  if (form == Form::kChannelFirst) return channel_first_kernel<Pack>;
  if (form == Form::kChannelLast) return channel_last_kernel_of<Pack>(has_groups_apart(p));
  return update_kernel_of<Pack>(update_form_of(p));
}

/// Threads that never wait for each other run to their ends, all of a grid in random order.
void run_threads(ConvKernel kernel, const ConvParams& p, const GridSize& grid,
                 std::mt19937_64& random) {
  std::vector<unsigned> order(grid.x * grid.y * grid.z * kThreads);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned at : order) {
    const unsigned cta = at / kThreads;
    emulation::block = {cta % grid.x, cta / grid.x % grid.y, cta / grid.x / grid.y};
    emulation::thread = {at % kThreads};
    kernel(p);
  }
}

/// CTAs whose warps look for sequences together, interleaved at random.
int run_warps(ConvKernel kernel, const ConvParams& p, const GridSize& grid,
              std::mt19937_64& random) {
  const emulation::Grid all{
      .ctas = grid.x * grid.y * grid.z, .threads = kThreads, .x = grid.x, .y = grid.y};
  return emulation::run_grid(all, random(), [&] { kernel(p); }).empty() ? 0 : 1;
}

}  // namespace

/// A GPU of a random size, and now and then several launches.
void launch(Form form, const ConvParams& params, Launcher& launcher) noexcept {
  std::mt19937_64 random(emulation_seed);
  const auto multiprocessors = static_cast<int>(random() % 8);
  const int64_t most = random() % 4 == 0 ? kWarps : int64_t{1} << 32;
  ConvParams planned = params;
  plan_launch(form, multiprocessors, &planned);
  in_grids(form, planned, most, [&](const ConvParams& p) {
    const GridSize grid = grid_of(form, p);
    emulation::block_extent = {kThreads};
    emulation::grid_extent = {grid.x, grid.y, grid.z};
    const bool bfloats = p.part[0].x.number == Number::kBfloat16;
    const auto kernel = bfloats ? kernel_of<BfloatPack>(form, p) : kernel_of<HalfPack>(form, p);
    if (!launcher.ok()) return;
    if (form == Form::kChannelLast) return launcher.note(run_warps(kernel, p, grid, random));
    run_threads(kernel, p, grid, random);
  });
}

int load_kernels() noexcept { return 0; }

}  // namespace conv1d

namespace gated_norm {
namespace {

template <Number kType>
void (*kernel_of(Form form, int64_t V))(NormParams) {
  if (form == Form::kAny) return any_form_kernel;
  if (form == Form::kTokenRows) return token_rows_kernel<kType, 1>;
  if (form == Form::kFourTokens) return token_rows_kernel<kType, 4>;
  return V == 128 ? one_axis_kernel<kType, 16> : one_axis_kernel<kType, 32>;
}

/// On no multiprocessors at all, where four tokens are taken together however few there are, or many.
int launch_one(NormParams p) noexcept {
  const Form form = plan_launch(emulation_seed % 2 == 0 ? 0 : 132, &p);
  const auto planned = ctas_of(form, p), few = 1 + static_cast<unsigned>(emulation_seed % 3);
  const unsigned ctas = form == Form::kAny ? few : planned;  // that one takes any number
  const auto kernel = p.x.number == Number::kBfloat16 ? kernel_of<Number::kBfloat16>(form, p.V)
                                                      : kernel_of<Number::kFloat16>(form, p.V);
  for (unsigned cta = 0; cta < ctas; ++cta) {
    const auto work = [&] { kernel(p); };
    if (!emulation::run_cta(cta, ctas, kThreads, emulation_seed + cta, work).empty()) return 1;
  }
  return 0;
}

}  // namespace

/// In parts of 7, 24 or more rows than there are, in turn.
void launch(const NormParams& params, Launcher& launcher) noexcept {
  static uint64_t calls = 0;
  constexpr int64_t kMost[] = {kMaxRows, 24, 7};
  in_parts(params, kMost[(emulation_seed + calls++) % 3], [&](const NormParams& p) {
    if (launcher.ok()) launcher.note(launch_one(p));
  });
}

int load_kernels() noexcept { return 0; }

}  // namespace gated_norm

namespace {

/// chunk_forward of the fused kernel where it takes the problem; all else of the reference.
const core::Operator<core::DeltaRuleProblem>& delta_rule(const core::DeltaRuleProblem& p) noexcept {
  if (p.op == SLUICE_OP_RECURRENT_STEP) return ref::recurrent_backend().recurrent_step;
  core::Plan plan;
  const bool fused = emulated_prefill().chunk_forward.plan(p, core::PlanFor::kCall, &plan).ok();
  return fused ? emulated_prefill().chunk_forward : ref::recurrent_backend().chunk_forward;
}

Status plan_delta(const core::DeltaRuleProblem& p, const Machine&, const Environment&,
                  core::Plan* plan) noexcept {
  return delta_rule(p).plan(p, core::PlanFor::kCall, plan);
}

void launch_delta(const core::DeltaRuleProblem& p, const core::Plan& plan, void* workspace,
                  Launcher& launcher) noexcept {
  const Status status =
      delta_rule(p).run(p, plan, {workspace, plan.workspace_bytes}, launcher.stream());
  launcher.note(status.ok() ? 0 : 1);
}

template <Tier tier>
Status accept_delta(const core::DeltaRuleProblem& p, const Machine&) noexcept {
  const bool fused = &delta_rule(p) == &emulated_prefill().chunk_forward;
  return fused == (tier == Tier::kFused) ? ok_status() : left_to_others();
}

constexpr Kernel<core::DeltaRuleProblem> kDeltaKernels[] = {
    {"fused", "emulated", Tier::kFused, accept_delta<Tier::kFused>, nullptr, plan_delta,
     launch_delta, nullptr},
    {"generic", "the reference", Tier::kGeneric, accept_delta<Tier::kGeneric>, nullptr, plan_delta,
     launch_delta, nullptr}};

}  // namespace

Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op) noexcept { return kDeltaKernels; }

const core::Backend& backend() noexcept {
  static const core::Backend instance = [] {
    core::Backend made{};
    made.id = SLUICE_IMPL_CUDA;
    made.name = "cuda";
    made.description = "the operators around the delta rule, emulated";
    made.requirement = "nothing";
    made.device_type = SLUICE_DEVICE_CUDA;
    made.available = []() noexcept { return true; };
    made.chunk_forward = {
        [](const core::DeltaRuleProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
          return delta_rule(p).plan(p, purpose, plan);
        },
        [](const core::DeltaRuleProblem& p, const core::Plan& plan, sluice_workspace workspace,
           void* stream) noexcept { return delta_rule(p).run(p, plan, workspace, stream); }};
    made.causal_conv1d = emulated_operator<causal_conv1d_catalogue>();
    made.gated_rms_norm = emulated_operator<gated_rms_norm_catalogue>();
    made.layer_prefill = emulated_operator<layer_prefill_catalogue>();
    made.layer_decode = made.layer_prefill;  // as where the decode kernel does not apply
    return made;
  }();
  return instance;
}

}  // namespace sluice::cuda
