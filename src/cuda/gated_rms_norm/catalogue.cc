// Lists the kernels of gated_rms_norm.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/gated_rms_norm/lower.h"
#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda {
namespace {

using core::GatedNormProblem, core::Plan;

Status accept(const GatedNormProblem&, const Machine& machine) noexcept {
  return check_capability("gated_rms_norm", machine);
}

constexpr core::KernelName kNames[] = {
    "cuda.gated_rms_norm.any_form", "cuda.gated_rms_norm.token_rows",
    "cuda.gated_rms_norm.four_tokens", "cuda.gated_rms_norm.one_axis"};

/// Addresses choose between the kernels too, but none of them has a workspace.
Status plan_norm(const GatedNormProblem& p, const Machine& machine, const Environment&,
                 Plan* plan) noexcept {
  auto* const norm = plan->keep_in_place<gated_norm::PlannedNorm>();
  lower_norm(p, p.x.dtype, &norm->params);
  gated_norm::plan_launch(machine.multiprocessors, norm);
  plan->kernel = kNames[static_cast<int>(norm->form)];
  return ok_status();
}

void launch_norm(const GatedNormProblem&, const Plan& plan, void*, Launcher& launcher) noexcept {
  gated_norm::launch(plan.kept_in_place<gated_norm::PlannedNorm>(), launcher);
}

constexpr Kernel<GatedNormProblem> kCatalogue[] = {
    {"gated_rms_norm", "every option, compute capability 8.0 or newer", Tier::kAny, accept, nullptr,
     plan_norm, launch_norm, [](const Machine&) noexcept { return gated_norm::load_kernels(); }}};

}  // namespace

Catalogue<GatedNormProblem> gated_rms_norm_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
