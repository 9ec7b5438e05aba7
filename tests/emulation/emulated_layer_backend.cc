// Runs the convolution, the gated norm and layer_prefill of the CUDA backend on the CPU: their host
// code as it is, their kernels by the emulator. The delta rule between them is the fused kernel,
// emulated, where that applies, else the float64 reference in place of the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include "core/backend.hpp"
#include "cuda/catalogues.h"
#include "cuda/kernels/conv1d/kernel.cuh"
#include "cuda/kernels/conv1d/patch.cuh"
#include "cuda/kernels/conv1d/pieces.h"
#include "cuda/kernels/conv1d/update.cuh"
#include "cuda/kernels/gated_norm/even.cuh"
#include "cuda/kernels/gated_norm/kernel.cuh"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/gated_norm/pieces.h"
#include "cuda/kernels/gated_norm/walk.cuh"
#include "cuda/machine.h"
#include "emulated_backend.hpp"
#include "emulated_operator.hpp"

namespace sluice::cuda {

Machine machine_of(int device) noexcept { return {device, 90, 4, {}}; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace conv1d {

alignas(16) uint4 head_stage[kStageBytes / 16];  // of the CTA that runs

namespace {

constexpr ConvKernel kKernels[] = {
    conv_kernel<FloatPack, Items::kRows>,    conv_kernel<BfloatPack, Items::kRows>,
    conv_kernel<HalfPack, Items::kRows>,     conv_kernel<ElementPack, Items::kRows>,
    conv_kernel<BfloatPack, Items::kLines>,  conv_kernel<HalfPack, Items::kLines>,
    conv_kernel<ElementPack, Items::kLines>, conv_kernel<FloatPack, Items::kNone>,
    conv_kernel<BfloatPack, Items::kNone>,   conv_kernel<HalfPack, Items::kNone>};

template <class Pack>
ConvKernel kernel_of(Body body, const ConvParams& p) {
  if (body == Body::kUpdates) return update_kernel_of<Pack>(update_form_of(p));
  if (is_whole(body)) return patch_kernel_of<Pack>(body == Body::kCutPatches);
  return kKernels[static_cast<int>(body)];
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

/// CTAs whose warps exchange columns, one after another in random order.
int run_ctas(ConvKernel kernel, const ConvParams& p, unsigned ctas, std::mt19937_64& random) {
  std::vector<unsigned> order(ctas);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned cta : order) {
    const auto work = [&] { kernel(p); };
    if (!emulation::run_cta(cta, ctas, kThreads, random(), work).empty()) return 1;
  }
  return 0;
}

/// CTAs whose warps look for sequences together, interleaved at random.
int run_warps(ConvKernel kernel, const ConvParams& p, const GridSize& grid,
              std::mt19937_64& random) {
  const emulation::Grid all{
      .ctas = grid.x * grid.y * grid.z, .threads = kThreads, .x = grid.x, .y = grid.y};
  return emulation::run_grid(all, random(), [&] { kernel(p); }).empty() ? 0 : 1;
}

}  // namespace

/// A GPU of a random size, and now and then launches in pieces.
void launch(const ConvParams& params, Launcher& launcher) noexcept {
  std::mt19937_64 random(emulation_seed);
  const auto multiprocessors = static_cast<int>(random() % 8);
  const int64_t most = random() % 4 == 0 ? kWarps : int64_t{1} << 32;
  const auto run_one = [&](Body body, const ConvParams& p) {
    const GridSize grid = grid_of(body, p);
    emulation::block_extent = {kThreads};
    emulation::grid_extent = {grid.x, grid.y, grid.z};
    const bool bfloats = p.part[0].x.number == Number::kBfloat16;
    const auto kernel = bfloats ? kernel_of<BfloatPack>(body, p) : kernel_of<HalfPack>(body, p);
    if (shared_bytes(body, p) > 0) return run_ctas(kernel, p, grid.x, random);
    if (body == Body::kCutPatches) return run_warps(kernel, p, grid, random);
    run_threads(kernel, p, grid, random);
    return 0;
  };
  in_launches(params, multiprocessors, most, [&](Body body, const ConvParams& p) {
    if (launcher.ok()) launcher.note(run_one(body, p));
  });
}

int load_kernels() noexcept { return 0; }

}  // namespace conv1d

namespace gated_norm {
namespace {

constexpr void (*kKernels[])(NormParams) = {walk_kernel<Number::kBfloat16, 4>,
                                            walk_kernel<Number::kFloat16, 4>,
                                            walk_kernel<Number::kBfloat16, 1>,
                                            walk_kernel<Number::kFloat16, 1>,
                                            even_kernel<Number::kBfloat16, 16>,
                                            even_kernel<Number::kBfloat16, 32>,
                                            even_kernel<Number::kFloat16, 16>,
                                            even_kernel<Number::kFloat16, 32>,
                                            packed_kernel,
                                            element_kernel};

int launch_one(NormParams p) noexcept {
  const Kernel kernel = plan_launch(static_cast<int>(emulation_seed % 5), &p);
  const auto planned = ctas_of(kernel, p), few = 1 + static_cast<unsigned>(emulation_seed % 3);
  const bool walks = kernel != Kernel::kPacks && kernel != Kernel::kElements;
  const unsigned ctas = walks ? planned : few;  // the others take any number
  for (unsigned cta = 0; cta < ctas; ++cta) {
    const auto work = [&] { kKernels[static_cast<int>(kernel)](p); };
    if (!emulation::run_cta(cta, ctas, kThreads, emulation_seed + cta, work).empty()) return 1;
  }
  return 0;
}

}  // namespace

/// In pieces of 7, 24 or more rows than there are, in turn.
void launch(const NormParams& params, Launcher& launcher) noexcept {
  static uint64_t calls = 0;
  constexpr int64_t kMost[] = {kMaxRows, 24, 7};
  in_pieces(params, kMost[(emulation_seed + calls++) % 3], [&](const NormParams& p) {
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

Catalogue<core::DeltaRuleProblem> chunk_forward_catalogue() noexcept { return kDeltaKernels; }

const core::Backend& backend() noexcept {
  static const core::Backend instance = [] {
    core::Backend made{};
    made.id = SLUICE_IMPL_CUDA;
    made.name = "cuda";
    made.description = "the operators around the delta rule, emulated";
    made.requirement = "nothing";
    made.device_type = SLUICE_DEVICE_CUDA;
    made.available = []() noexcept { return true; };
    made.chunk_forward = emulated_operator<chunk_forward_catalogue>();
    made.causal_conv1d = emulated_operator<causal_conv1d_catalogue>();
    made.gated_rms_norm = emulated_operator<gated_rms_norm_catalogue>();
    made.layer_prefill = emulated_operator<layer_prefill_catalogue>();
    made.layer_decode = made.layer_prefill;  // as where the decode kernel does not apply
    return made;
  }();
  return instance;
}

}  // namespace sluice::cuda
