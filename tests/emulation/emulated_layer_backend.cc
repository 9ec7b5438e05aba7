// The convolution, the gated norm and layer_prefill of the CUDA backend on the CPU: their host code
// as it is, their kernels by the emulator. The delta rule between them is the fused kernel,
// emulated, where that applies, else the float64 reference in place of the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include "core/backend.hpp"
#include "cuda/causal_conv1d.h"
#include "cuda/delta_rule.h"
#include "cuda/gated_rms_norm.h"
#include "cuda/gpu.h"
#include "cuda/kernels/conv1d/kernel.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/gated_norm/kernel.cuh"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/gated_norm/pieces.h"
#include "cuda/layer_prefill.h"
#include "emulated_backend.hpp"

namespace sluice::cuda {

int compute_capability(int) noexcept { return 90; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace conv1d {
namespace {

constexpr void (*kKernels[])(ConvParams) = {
    conv_kernel<FloatPack, false>, conv_kernel<ShortPack, false>, conv_kernel<ElementPack, false>,
    conv_kernel<ShortPack, true>, conv_kernel<ElementPack, true>};

}  // namespace

/// Threads never wait for each other, so each runs to its end, all of them in random order; a GPU
/// of a random size.
int launch(ConvParams p, void*) noexcept {
  std::mt19937_64 random(emulation_seed);
  const Body body = choose_body(p);
  plan_launch(body, static_cast<int>(random() % 8), &p);
  const auto ctas = static_cast<unsigned>(std::min<int64_t>((p.warps + kWarps - 1) / kWarps, 300));
  emulation::block_extent = {kThreads};
  emulation::grid_extent = {ctas};
  std::vector<unsigned> order(ctas * kThreads);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned at : order) {
    emulation::block = {at / kThreads};
    emulation::thread = {at % kThreads};
    kKernels[static_cast<int>(body)](p);
  }
  return 0;
}

}  // namespace conv1d

namespace gated_norm {
namespace {

int launch_one(NormParams p) noexcept {
  const bool packs = by_packs(p);
  plan_launch(&p);
  const unsigned ctas = 1 + static_cast<unsigned>(emulation_seed % 3);
  for (unsigned cta = 0; cta < ctas; ++cta) {
    const std::string trouble = emulation::run_cta(cta, ctas, kThreads, emulation_seed + cta, [&] {
      packs ? packed_kernel(p) : element_kernel(p);
    });
    if (!trouble.empty()) return 1;
  }
  return 0;
}

}  // namespace

/// In pieces of 7, 24 or more rows than there are, in turn.
int launch(const NormParams& params, void*) noexcept {
  static uint64_t calls = 0;
  constexpr int64_t kMost[] = {kMaxRows, 24, 7};
  return in_pieces(params, kMost[(emulation_seed + calls++) % 3], launch_one);
}

}  // namespace gated_norm

namespace {

/// chunk_forward of the fused kernel where it takes the problem; all else of the reference.
const core::Operator<core::DeltaRuleProblem>& delta_rule(const core::DeltaRuleProblem& p) noexcept {
  if (p.op == SLUICE_OP_RECURRENT_STEP) return ref::recurrent_backend().recurrent_step;
  core::KernelName name = "";
  const bool fused = emulated_prefill().chunk_forward.select(p, &name).ok();
  return fused ? emulated_prefill().chunk_forward : ref::recurrent_backend().chunk_forward;
}

}  // namespace

Status select_delta_rule(const core::DeltaRuleProblem& p, core::KernelName* name) noexcept {
  return delta_rule(p).select(p, name);
}

size_t delta_rule_workspace(const core::DeltaRuleProblem& p) noexcept {
  return delta_rule(p).workspace(p);
}

Status run_delta_rule(const core::DeltaRuleProblem& p, sluice_workspace workspace,
                      void* stream) noexcept {
  return delta_rule(p).run(p, workspace, stream);
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
    made.chunk_forward = {select_delta_rule, delta_rule_workspace, run_delta_rule};
    made.causal_conv1d = {select_causal_conv1d, causal_conv1d_workspace, run_causal_conv1d};
    made.gated_rms_norm = {select_gated_rms_norm, gated_rms_norm_workspace, run_gated_rms_norm};
    made.layer_prefill = {select_layer_prefill, layer_prefill_workspace, run_layer_prefill};
    made.layer_decode = made.layer_prefill;  // as where the decode kernel does not apply
    return made;
  }();
  return instance;
}

}  // namespace sluice::cuda
