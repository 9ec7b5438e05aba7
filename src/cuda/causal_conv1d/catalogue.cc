// Lists the kernels of causal_conv1d.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda {
namespace {

using core::CausalConvProblem, core::Plan;

Status accept(const CausalConvProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("causal_conv1d", machine); !s.ok()) return s;
  constexpr int64_t kMaxColumns = (int64_t{1} << 31) - 1;
  if (p.L <= kMaxColumns) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "causal_conv1d: conv state columns L = %lld, expected below 2^31 (CUDA "
                         "kernels)",
                         static_cast<long long>(p.L));
}

constexpr core::KernelName kNames[] = {
    "cuda.causal_conv1d.any_form", "cuda.causal_conv1d.channel_first",
    "cuda.causal_conv1d.channel_last", "cuda.causal_conv1d.update"};

/// Addresses choose between the kernels too, but none of them has a workspace.
Status plan_conv(const CausalConvProblem& p, const Machine& machine, const Environment&,
                 Plan* plan) noexcept {
  auto* const conv = plan->keep_in_place<conv1d::PlannedConv>();
  lower_conv(&p, 1, &conv->params);
  conv1d::plan_launch(machine.multiprocessors, conv);
  plan->kernel = kNames[static_cast<int>(conv->form)];
  return ok_status();
}

void launch_conv(const CausalConvProblem&, const Plan& plan, void*, Launcher& launcher) noexcept {
  conv1d::launch(plan.kept_in_place<conv1d::PlannedConv>(), launcher);
}

constexpr Kernel<CausalConvProblem> kCatalogue[] = {
    {"causal_conv1d", "every option, compute capability 8.0 or newer", Tier::kAny, accept, nullptr,
     plan_conv, launch_conv, [](const Machine&) noexcept { return conv1d::load_kernels(); }}};

}  // namespace

Catalogue<CausalConvProblem> causal_conv1d_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
