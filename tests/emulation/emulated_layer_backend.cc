// Runs the convolution, the gated norm and layer_prefill of the CUDA backend on the CPU: their host
// code as it is, their kernels by the emulator. The delta rule between them is the one-launch kernel,
// emulated, where that applies, else the float64 reference in place of the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include "core/backend.hpp"
#include "cuda/catalogues.h"
#include "cuda/kernels/conv1d/blocks.cuh"
#include "cuda/kernels/gated_norm/forward_rows.cuh"
#include "cuda/machine.h"
#include "emulated_backend.hpp"
#include "emulated_operator.hpp"

namespace sluice::cuda {

Machine machine_of(int device) noexcept { return {device, 90, 4, {}}; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace conv1d {
namespace {

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

/// On a GPU of a random size, and now and then with fewer CTAs than items.
void launch(const PlannedConv& planned, Launcher& launcher) noexcept {
  std::mt19937_64 random(emulation_seed);
  PlannedConv conv = planned;
  plan_launch(static_cast<int>(random() % 8), &conv);
  if (random() % 4 == 0 && conv.form == Form::kAny) conv.grid.x = std::min(conv.grid.x, 2u);
  emulation::block_extent = {kThreads};
  emulation::grid_extent = {conv.grid.x, conv.grid.y, conv.grid.z};
  const bool blocks = conv.form == Form::kChannelFirst || conv.form == Form::kChannelLast;
  const ConvKernel kernel = kernel_of(conv);
  if (blocks) return launcher.note(run_warps(kernel, conv.params, conv.grid, random));
  run_threads(kernel, conv.params, conv.grid, random);
}

int load_kernels() noexcept { return 0; }

}  // namespace conv1d

namespace gated_norm {
namespace {

/// On no multiprocessors at all, where four tokens are taken together however few there are, or many.
int run_norm(PlannedNorm norm) noexcept {
  plan_launch(emulation_seed % 2 == 0 ? 0 : 132, &norm);
  const auto few = 1 + static_cast<unsigned>(emulation_seed % 3);
  const unsigned ctas = norm.form == Form::kAny ? few : norm.ctas;  // that one takes any number
  const NormKernel kernel = kernel_of(norm);
  for (unsigned cta = 0; cta < ctas; ++cta) {
    const auto work = [&] { kernel(norm.params); };
    if (!emulation::run_cta(cta, ctas, kThreads, emulation_seed + cta, work).empty()) return 1;
  }
  return 0;
}

}  // namespace

void launch(const PlannedNorm& norm, Launcher& launcher) noexcept { launcher.note(run_norm(norm)); }

int load_kernels() noexcept { return 0; }

}  // namespace gated_norm

namespace {

/// chunk_forward of the one-launch kernel where it takes the problem; all else of the reference.
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
  const bool fast = &delta_rule(p) == &emulated_prefill().chunk_forward;
  return fast == (tier == Tier::kFast) ? ok_status() : left_to_others();
}

constexpr Kernel<core::DeltaRuleProblem> kDeltaKernels[] = {
    {"fused", "emulated", Tier::kFast, accept_delta<Tier::kFast>, nullptr, plan_delta, launch_delta,
     nullptr},
    {"generic", "the reference", Tier::kGeneric, accept_delta<Tier::kGeneric>, nullptr, plan_delta,
     launch_delta, nullptr}};

}  // namespace

Catalogue<core::DeltaRuleProblem> layer_delta_kernels(sluice_op) noexcept { return kDeltaKernels; }

namespace {

/// Gradients of the delta rule are the reference's. As on Hopper 16-bit heads of 128 x 128 count as
/// tensor cores', so that what goes between a layer's parts has their dtype.
template <Tier tier>
Status accept_gradients(const core::ChunkBackwardProblem& p, const Machine&) noexcept {
  const bool tiles = p.forward.q.dtype.bits == 16 && p.d_o.dtype.bits == 16 && p.forward.K == 128 &&
                     p.forward.V == 128;
  return tiles || tier == Tier::kAny ? ok_status() : left_to_others();
}

Status plan_gradients(const core::ChunkBackwardProblem& p, const Machine&, const Environment&,
                      core::Plan* plan) noexcept {
  return ref::recurrent_backend().chunk_backward.plan(p, core::PlanFor::kCall, plan);
}

void launch_gradients(const core::ChunkBackwardProblem& p, const core::Plan& plan, void* workspace,
                      Launcher& launcher) noexcept {
  const Status status = ref::recurrent_backend().chunk_backward.run(
      p, plan, {workspace, plan.workspace_bytes}, launcher.stream());
  launcher.note(status.ok() ? 0 : 1);
}

constexpr Kernel<core::ChunkBackwardProblem> kGradientKernels[] = {
    {"tiles", "emulated", Tier::kFast, accept_gradients<Tier::kFast>, nullptr, plan_gradients,
     launch_gradients, nullptr},
    {"plain", "the reference", Tier::kAny, accept_gradients<Tier::kAny>, nullptr, plan_gradients,
     launch_gradients, nullptr}};

}  // namespace

Catalogue<core::ChunkBackwardProblem> chunk_backward_catalogue() noexcept {
  return kGradientKernels;
}

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
    made.causal_conv1d_backward = emulated_operator<causal_conv1d_backward_catalogue>();
    made.gated_rms_norm_backward = emulated_operator<gated_rms_norm_backward_catalogue>();
    made.layer_prefill = emulated_operator<layer_prefill_catalogue>();
    made.layer_backward = emulated_operator<layer_backward_catalogue>();
    made.layer_decode = made.layer_prefill;  // as where the decode kernel does not apply
    return made;
  }();
  return instance;
}

}  // namespace sluice::cuda
