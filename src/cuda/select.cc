// Old names of what chunk_forward/ does, for operators that have no catalogue yet.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/select.h"

#include "cuda/catalogues.h"

namespace sluice::cuda {

Status choose_kernel(const core::DeltaRuleProblem& problem, const Gpu& gpu, const Environment& wish,
                     KernelChoice* choice) noexcept {
  core::Plan plan;
  const Status status =
      plan_by(chunk_forward_catalogue(), problem, gpu.machine(), wish, core::PlanFor::kCall, &plan);
  if (status.ok()) *choice = {plan.kernel, choose_cut(problem, gpu.machine(), wish.cut)};
  return status;
}

bool may_be_fused(const core::DeltaRuleProblem& problem, const Gpu& gpu,
                  const Environment& wish) noexcept {
  core::Plan plan;
  Environment fused = wish;
  fused.kernel = KernelOverride::kFused;
  return wish.kernel != KernelOverride::kGeneric &&
         plan_by(chunk_forward_catalogue(), problem, gpu.machine(), fused,
                 core::PlanFor::kAnyAddress, &plan)
             .ok();
}

}  // namespace sluice::cuda
