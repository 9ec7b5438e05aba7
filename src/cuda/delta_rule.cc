// SPDX-License-Identifier: Apache-2.0
#include "cuda/delta_rule.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "cuda/catalogues.h"
#include "cuda/gpu.h"
#include "cuda/kernels/generic/launch.h"
#include "cuda/lower.h"
#include "cuda/prefill/launch.h"
#include "cuda/select.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;

Gpu gpu_of(const DeltaRuleProblem& p) noexcept {
  const int device = p.q.device.index;
  return {compute_capability(device), multiprocessors(device), resident_clusters(device)};
}

Status choose(const DeltaRuleProblem& p, KernelChoice* choice) noexcept {
  if (!environment().status.ok()) return environment().status;
  return choose_kernel(p, gpu_of(p), environment(), choice);
}

}  // namespace

const char* wished_kernel() noexcept {
  static const char* const name = [] {
    const char* value = std::getenv("SLUICE_CUDA_KERNEL");
    return value == nullptr || *value == '\0' ? "auto" : value;
  }();
  return name;
}

Status select_delta_rule(const DeltaRuleProblem& p, core::KernelName* name) noexcept {
  KernelChoice choice;
  const Status status = choose(p, &choice);
  if (status.ok()) *name = choice.name;
  return status;
}

size_t delta_rule_workspace(const DeltaRuleProblem& p) noexcept {
  const Gpu gpu = gpu_of(p);
  const Environment& wish = environment();
  if (!may_be_fused(p, gpu, wish)) return 0;
  return split_workspace(p, choose_split(p, gpu.room(), wish.cut));
}

Status run_delta_rule(const DeltaRuleProblem& p, sluice_workspace workspace,
                      void* stream) noexcept {
  KernelChoice choice;
  if (const Status status = choose(p, &choice); !status.ok()) return status;
  const DeviceGuard guard(p.q.device.index);
  int error = guard.error();
  if (error == cudaSuccess) {
    error = choice.kernel == DeltaKernel::kFused
                ? prefill::launch(lower_fused(p, choice.split), lower_tiles(p), workspace.data,
                                  p.q.device.index, stream)
                : generic::launch(lower_generic(p), stream);
  }
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "%s: launch = %s, expected cudaSuccess",
                         p.op == SLUICE_OP_CHUNK_FORWARD ? "chunk_forward" : "recurrent_step",
                         cudaGetErrorName(static_cast<cudaError_t>(error)));
}

namespace {

template <DeltaKernel kernel>
Status accept(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  const auto only =
      kernel == DeltaKernel::kFused ? KernelOverride::kFused : KernelOverride::kGeneric;
  KernelChoice choice;
  return choose_kernel(p, {machine.capability, machine.multiprocessors, machine.clusters},
                       {only, environment().cut}, &choice);
}

Status plan_delta(const DeltaRuleProblem& p, const Machine&, const Environment&,
                  core::Plan* plan) noexcept {
  plan->workspace_bytes = delta_rule_workspace(p);
  return select_delta_rule(p, &plan->kernel);
}

void launch_delta(const DeltaRuleProblem& p, const core::Plan& plan, void* workspace,
                  Launcher& launcher) noexcept {
  launcher.note_status(run_delta_rule(p, {workspace, plan.workspace_bytes}, launcher.stream()));
}

constexpr Kernel<DeltaRuleProblem> kCatalogue[] = {
    {"chunk_forward.fused", "", Tier::kFused, accept<DeltaKernel::kFused>, nullptr, plan_delta,
     launch_delta, nullptr},
    {"chunk_forward.generic", "", Tier::kGeneric, accept<DeltaKernel::kGeneric>, nullptr,
     plan_delta, launch_delta, nullptr}};

}  // namespace

Catalogue<DeltaRuleProblem> chunk_forward_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
