// Plans and runs chunk_forward, and steps of the generic kernel, by their catalogues.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/delta_rule.h"

#include <cstdlib>

#include "cuda/catalogues.h"
#include "cuda/chunk_forward/generic.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;

constexpr Kernel<DeltaRuleProblem> kSteps[] = {generic_kernel("recurrent_step.generic")};

Status plan_for(const DeltaRuleProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
  const bool step = p.op == SLUICE_OP_RECURRENT_STEP;
  return plan_by(step ? Catalogue<DeltaRuleProblem>(kSteps) : chunk_forward_catalogue(), p,
                 machine_of(p.q.device.index), environment(), purpose, plan);
}

}  // namespace

Status plan_chunk_forward(const DeltaRuleProblem& p, core::PlanFor purpose,
                          core::Plan* plan) noexcept {
  return plan_for(p, purpose, plan);
}

Status run_chunk_forward(const DeltaRuleProblem& p, const core::Plan& plan,
                         sluice_workspace workspace, void* stream) noexcept {
  const char* const op = p.op == SLUICE_OP_CHUNK_FORWARD ? "chunk_forward" : "recurrent_step";
  return run_plan(op, p, plan, machine_of(p.q.device.index), workspace.data, stream);
}

const char* wished_kernel() noexcept {
  static const char* const name = [] {
    const char* value = std::getenv("SLUICE_CUDA_KERNEL");
    return value == nullptr || *value == '\0' ? "auto" : value;
  }();
  return name;
}

Status select_delta_rule(const DeltaRuleProblem& p, core::KernelName* name) noexcept {
  core::Plan plan;
  const Status status = plan_for(p, core::PlanFor::kCall, &plan);
  *name = plan.kernel;
  return status;
}

size_t delta_rule_workspace(const DeltaRuleProblem& p) noexcept {
  core::Plan plan;
  return plan_for(p, core::PlanFor::kAnyAddress, &plan).ok() ? plan.workspace_bytes : 0;
}

Status run_delta_rule(const DeltaRuleProblem& p, sluice_workspace workspace,
                      void* stream) noexcept {
  core::Plan plan;
  const Status status = plan_for(p, core::PlanFor::kCall, &plan);
  return status.ok() ? run_chunk_forward(p, plan, workspace, stream) : status;
}

}  // namespace sluice::cuda
