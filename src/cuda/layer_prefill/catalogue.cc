// Plans and launches a layer by its parts: one convolution of q, k and v (three where their weights
// and states are separate), the delta rule, one gated norm.
//
// WHY three kernels: the delta rule wants whole chunks of q, k and v in shared memory tiles that
// the copy engine fills, so something has to write the convolved rows first; l2 norm and gates need
// one head of a chunk, so they stay inside the delta rule kernel; the norm needs a whole row of V,
// of which a work item of the delta rule may have half.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>

#include "core/host_access.hpp"
#include "cuda/catalogues.h"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/gated_rms_norm/lower.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/generic/config.h"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::Plan, core::present, core::Tensor;
using DeltaKernel = Kernel<DeltaRuleProblem>;

/// What is decided around the delta rule, whose plan a layer's also is. Bits do not depend on
/// core_out being asked for.
struct LayerChoice {
  const void* delta_entry;  ///< of layer_delta_kernels()
  sluice_dtype core_dtype;  ///< of the delta rule's output: qkv's for fast kernels, else float32
  bool core_in_place;       ///< it goes to core_out; else to the workspace, and the norm copies it
};

/// The parts with their memory between them.
struct LayerParts {
  core::CausalConvProblem conv[3];
  DeltaRuleProblem delta;
  core::GatedNormProblem norm;
  Tensor core_copy{};  ///< where the norm also writes its input; absent where it is there
  device::RowKind* row_kinds = nullptr;  ///< null: all rows are live
  void* delta_workspace = nullptr;
  size_t bytes;  ///< of the workspace, up to the delta rule's

  LayerParts(const LayerProblem& problem, const LayerChoice& choice, void* base) noexcept
      : delta(problem.delta), norm(problem.norm) {
    WorkspaceLayout layout(base);
    std::copy_n(problem.conv, 3, conv);
    const int64_t B = delta.rows.B, T = delta.rows.T;
    const Tensor& x = conv[0].x;
    delta.q = take_view(layout, x.device, x.dtype, {B, T, delta.H, delta.K});
    delta.k = take_view(layout, x.device, x.dtype, {B, T, delta.H, delta.K});
    delta.v = take_view(layout, x.device, x.dtype, {B, T, delta.HV, delta.V});
    const Tensor* parts[3] = {&delta.q, &delta.k, &delta.v};
    for (int i = 0; i < 3; ++i) conv[i].out = reshaped(*parts[i], {B, T, conv[i].G, conv[i].C});
    // WHY memory even where core_out takes its place: that depends on core_out's address, and
    // workspaces are as large for any.
    delta.o = take_view(layout, x.device, choice.core_dtype, {B, T, delta.HV, delta.V});
    if (choice.core_in_place) {
      delta.o = problem.delta.o;  // and norm.x is a view of it already
    } else {
      core_copy = norm.x;
      norm.x = reshaped(delta.o, {B, T, delta.HV / delta.r, delta.r, delta.V});
    }
    if (present(delta.rows.cu_seqlens) || present(delta.state.read_slots)) {
      row_kinds = layout.take<device::RowKind>(B * T);
    }
    bytes = layout.bytes();
    delta_workspace = layout.take(0);
  }
};

const char* op_name(const LayerProblem& problem) noexcept {
  return problem.op == SLUICE_OP_LAYER_PREFILL ? "layer_prefill" : "layer_decode";
}

Status accept(const LayerProblem& p, const Machine&) noexcept {
  return check_at_most(op_name(p), "head_k_dim", p.delta.K, generic::kMaxK);
}

const DeltaKernel& delta_kernel(const void* entry) noexcept {
  return *static_cast<const DeltaKernel*>(entry);
}

/// Whether a delta rule kernel that was chosen for an output in the workspace can write core_out.
bool writes_core(const LayerProblem& p, DeltaRuleProblem delta, const DeltaKernel& kernel,
                 const Machine& machine) noexcept {
  const Tensor& wanted = p.delta.o;
  const sluice_dtype dtype = delta.o.dtype;
  if (!present(wanted) || wanted.dtype.code != dtype.code || wanted.dtype.bits != dtype.bits) {
    return false;
  }
  delta.o = wanted;
  return kernel.accepts(delta, machine).ok() &&
         (kernel.accepts_addresses == nullptr || kernel.accepts_addresses(delta).ok());
}

Status plan_layer(const LayerProblem& p, const Machine& machine, const Environment& environment,
                  Plan* plan) noexcept {
  LayerChoice choice{nullptr, p.conv[0].x.dtype, false};
  LayerParts parts(p, choice, any_workspace());
  const auto plan_delta = [&] {
    return plan_by(layer_delta_kernels(p.op), parts.delta, machine, environment,
                   core::PlanFor::kCall, plan);
  };
  Status status = plan_delta();
  bool fast = status.ok() && delta_kernel(plan->entry).tier == Tier::kFast;
  if (!fast) {
    choice.core_dtype = core::kFloat32;
    parts = LayerParts(p, choice, any_workspace());
    status = plan_delta();
  }
  if (!status.ok()) return status;
  choice.delta_entry = plan->entry;
  choice.core_in_place = writes_core(p, parts.delta, delta_kernel(plan->entry), machine);
  constexpr core::KernelName kNames[][2] = {
      {"cuda.layer_prefill.generic", "cuda.layer_prefill.sm_90a"},
      {"cuda.layer_decode.generic", "cuda.layer_decode.sm_90a.in_parts"}};
  plan->kernel = kNames[p.op == SLUICE_OP_LAYER_DECODE][fast];
  plan->workspace_bytes += parts.bytes;
  plan->keep_around(choice);
  return ok_status();
}

void launch_layer(const LayerProblem& p, const Plan& plan, void* workspace,
                  Launcher& launcher) noexcept {
  const auto choice = plan.kept_around<LayerChoice>();
  const LayerParts parts(p, choice, workspace);
  launch_convs(parts.conv, p.separate ? 1 : 3, parts.row_kinds, launcher);
  if (!launcher.ok()) return;
  delta_kernel(choice.delta_entry).launch(parts.delta, plan, parts.delta_workspace, launcher);
  gated_norm::PlannedNorm norm;
  lower_norm(parts.norm, parts.norm.out.dtype, &norm.params);
  norm.params.copy = norm_rows(parts.core_copy);
  norm.params.row_kinds = parts.row_kinds;
  norm.params.row_kinds_stride = parts.delta.rows.T;
  gated_norm::plan_launch(launcher.machine().multiprocessors, &norm);
  gated_norm::launch(norm, launcher);
}

constexpr Kernel<LayerProblem> kCatalogue[] = {{"layer_prefill", "what chunk_forward takes",
                                                Tier::kAny, accept, nullptr, plan_layer,
                                                launch_layer, nullptr}};

}  // namespace

Catalogue<LayerProblem> layer_prefill_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
