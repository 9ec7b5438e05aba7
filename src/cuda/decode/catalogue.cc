// Orders the kernels of recurrent_step and layer_decode, and plans calls by that order.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/catalogue.h"

#include "cuda/chunk_forward/generic.h"
#include "cuda/decode/rows.h"
#include "cuda/layer_prefill.h"

namespace sluice::cuda::decode {
namespace {

Status check_layer_in_parts(const LayerProblem& p, const Machine&) noexcept {
  core::KernelName name;
  return select_layer_prefill(p, &name);
}

Status plan_layer_in_parts(const LayerProblem& p, const Machine&, const Environment&,
                           core::Plan* plan) noexcept {
  plan->kernel = "cuda.layer_decode.generic";
  plan->workspace_bytes = layer_prefill_workspace(p);
  return ok_status();
}

void launch_layer_in_parts(const LayerProblem& p, const core::Plan& plan, void* workspace,
                           Launcher& launch) noexcept {
  launch.note_status(run_layer_prefill(p, {workspace, plan.workspace_bytes}, launch.stream()));
}

/// What layer_decode falls back on; layer_prefill's catalogue loads it.
constexpr Kernel<LayerProblem> kLayerInParts{"layer_decode.generic",
                                             "any layer, by the kernels of layer_prefill",
                                             Tier::kGeneric,
                                             check_layer_in_parts,
                                             nullptr,
                                             plan_layer_in_parts,
                                             launch_layer_in_parts,
                                             nullptr};

Status plan_step(const DeltaRuleProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
  const Machine machine = machine_of(p.q.device.index);
  const auto kernels = core::present(p.ring.k) ? replay_step_kernels() : step_kernels();
  return plan_by(kernels, p, machine, environment(), purpose, plan);
}

Status run_step(const DeltaRuleProblem& p, const core::Plan& plan, sluice_workspace workspace,
                void* stream) noexcept {
  return run_plan("recurrent_step", p, plan, machine_of(p.q.device.index), workspace.data, stream);
}

Status plan_layer(const LayerProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
  const Machine machine = machine_of(p.norm.out.device.index);
  const auto kernels = core::present(p.delta.ring.k) ? replay_layer_kernels() : layer_kernels();
  return plan_by(kernels, p, machine, environment(), purpose, plan);
}

Status run_layer(const LayerProblem& p, const core::Plan& plan, sluice_workspace workspace,
                 void* stream) noexcept {
  const Machine machine = machine_of(p.norm.out.device.index);
  return run_plan("layer_decode", p, plan, machine, workspace.data, stream);
}

}  // namespace

Catalogue<DeltaRuleProblem> step_kernels() noexcept {
  static const Kernel<DeltaRuleProblem> rows[] = {single_step_kernel(), any_step_kernel(),
                                                  generic_kernel("recurrent_step.generic")};
  return rows;
}

Catalogue<DeltaRuleProblem> replay_step_kernels() noexcept {
  static const Kernel<DeltaRuleProblem> rows[] = {replay_model_kernel(), replay_step_kernel()};
  return rows;
}

Catalogue<LayerProblem> layer_kernels() noexcept {
  static const Kernel<LayerProblem> rows[] = {single_layer_kernel(), any_layer_kernel(),
                                              layer_by_element_kernel(), kLayerInParts};
  return rows;
}

Catalogue<LayerProblem> replay_layer_kernels() noexcept {
  static const Kernel<LayerProblem> rows[] = {replay_layer_kernel()};
  return rows;
}

core::Operator<DeltaRuleProblem> recurrent_step_operator() noexcept {
  return {plan_step, run_step};
}

core::Operator<LayerProblem> layer_decode_operator() noexcept { return {plan_layer, run_layer}; }

}  // namespace sluice::cuda::decode
