// Plans and launches gradients of a layer by its parts: the convolution and, unless the core output
// is given, the delta rule forwards; then the gradients of the norm, of the delta rule and of the
// convolution, which are one call where channels have the order of weights. Where q, k and v have
// weights and states of their own each way through convolutions is three calls.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/host_access.hpp"
#include "cuda/catalogues.h"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/gated_rms_norm/lower.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {
namespace {

using core::CausalConvBackwardProblem, core::CausalConvProblem, core::LayerBackwardProblem;
using core::Plan, core::present, core::Tensor;

/// What is decided around the parts.
struct LayerBackwardChoice {
  sluice_dtype core;     ///< of the delta rule's output, where it is computed: as in layer_prefill
  sluice_dtype between;  ///< of gradients between the parts: qkv's for tensor cores, else float32
};

/// Elements first .. first + count - 1 of rows [B,T,width], as [B,T,count / columns,columns].
Tensor slice_of_rows(Tensor t, int64_t first, int64_t count, int64_t columns) noexcept {
  t.data = static_cast<std::byte*>(t.data) + first * (t.dtype.bits / 8);
  t.rank = 4;
  t.shape[2] = count / columns, t.shape[3] = columns;
  t.stride[2] = columns, t.stride[3] = 1;
  return t;
}

/// The gradients of the first `channels` channels as one problem, of which `first` has the slices
/// that begin at channel 0.
CausalConvBackwardProblem joined(CausalConvBackwardProblem first, int64_t channels,
                                 const Tensor& gradients) noexcept {
  CausalConvProblem& f = first.forward;
  f.G = 1, f.C = channels;
  for (Tensor* t : {&f.x, &first.dx}) t->shape[2] = 1, t->shape[3] = channels, t->stride[2] = 0;
  for (Tensor* t : {&f.weight, &f.bias, &first.dweight, &first.dbias}) t->shape[0] = channels;
  for (Tensor* t : {&f.state.initial, &first.dinitial, &first.d_final}) t->shape[1] = channels;
  first.d_out = slice_of_rows(gradients, 0, channels, channels);
  return first;
}

/// The parts with their memory between them.
struct LayerGradients {
  CausalConvProblem forward[3];
  CausalConvBackwardProblem conv[3];
  int convs;
  core::DeltaRuleProblem rule;  ///< the forward call
  core::ChunkBackwardProblem delta;
  core::GatedNormBackwardProblem norm;
  bool runs_rule;                        ///< the core output is not given
  device::RowKind* row_kinds = nullptr;  ///< null: all rows are live
  void* rest = nullptr;                  ///< the workspace of a part
  size_t bytes;                          ///< of the workspace, up to that

  LayerGradients(const LayerBackwardProblem& problem, const LayerBackwardChoice& choice,
                 void* base) noexcept
      : delta(problem.delta), norm(problem.norm), runs_rule(!present(problem.norm.forward.x)) {
    WorkspaceLayout layout(base);
    core::DeltaRuleProblem& p = delta.forward;
    const sluice_device device = problem.conv[0].forward.x.device;
    const sluice_dtype io = problem.conv[0].forward.x.dtype;
    const int64_t B = p.rows.B, T = p.rows.T, keys = p.H * p.K, values = p.HV * p.V;
    p.q = take_view(layout, device, io, {B, T, p.H, p.K});
    p.k = take_view(layout, device, io, {B, T, p.H, p.K});
    p.v = take_view(layout, device, io, {B, T, p.HV, p.V});
    const Tensor gradients = take_view(layout, device, choice.between, {B, T, 2 * keys + values});
    delta.dq = slice_of_rows(gradients, 0, keys, p.K);
    delta.dk = slice_of_rows(gradients, keys, keys, p.K);
    delta.dv = slice_of_rows(gradients, 2 * keys, values, p.V);
    delta.d_o = take_view(layout, device, choice.between, {B, T, p.HV, p.V});
    norm.dx = reshaped(delta.d_o, {B, T, p.HV / p.r, p.r, p.V});
    rule = p;
    rule.op = SLUICE_OP_CHUNK_FORWARD;
    if (runs_rule) {
      rule.o = take_view(layout, device, choice.core, {B, T, p.HV, p.V});
      norm.forward.x = reshaped(rule.o, {B, T, p.HV / p.r, p.r, p.V});
    }
    if (present(p.rows.cu_seqlens)) row_kinds = layout.take<device::RowKind>(B * T);
    place_convs(problem, gradients);
    bytes = layout.bytes();
    rest = layout.take(0);
  }

 private:
  void place_convs(const LayerBackwardProblem& problem, const Tensor& gradients) noexcept {
    const core::DeltaRuleProblem& p = delta.forward;
    const Tensor* rows[3] = {&p.q, &p.k, &p.v};
    const Tensor* slices[3] = {&delta.dq, &delta.dk, &delta.dv};
    for (int i = 0; i < 3; ++i) {
      conv[i] = problem.conv[i];
      forward[i] = conv[i].forward;
      forward[i].out = reshaped(*rows[i], {p.rows.B, p.rows.T, forward[i].G, forward[i].C});
      conv[i].d_out = *slices[i];
      conv[i].d_out.shape[2] = forward[i].G, conv[i].d_out.shape[3] = forward[i].C;
      conv[i].d_out.stride[2] = forward[i].C;
    }
    const CausalConvProblem &q = forward[0], &k = forward[1];
    // Packing FLAT: k's channels follow q's in a row.
    const bool neighbours = !problem.separate &&
                            static_cast<std::byte*>(k.x.data) - static_cast<std::byte*>(q.x.data) ==
                                q.G * q.C * (q.x.dtype.bits / 8) &&
                            (q.G == 1 || q.x.stride[2] == q.C);
    convs = neighbours ? 1 : 3;
    if (neighbours) conv[0] = joined(conv[0], gradients.shape[2], gradients);
  }
};

Status accept(const LayerBackwardProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("layer_backward", machine); !s.ok()) return s;
  return check_at_most("layer_backward", "head_k_dim", p.delta.forward.K, backward::kMaxK);
}

Status plan_layer(const LayerBackwardProblem& p, const Machine& machine,
                  const Environment& environment, Plan* plan) noexcept {
  const sluice_dtype io = p.conv[0].forward.x.dtype;
  LayerBackwardChoice choice{io, io};
  LayerGradients parts(p, choice, any_workspace());
  size_t rule_bytes = 0, most = 0;
  bool fast = true, tiles = false;
  const auto plan_rule = [&] {
    return plan_part(layer_delta_kernels(SLUICE_OP_LAYER_PREFILL), parts.rule, machine, environment,
                     core::PlanFor::kCall, &rule_bytes, &fast);
  };
  const auto plan_delta = [&] {
    return plan_part(chunk_backward_catalogue(), parts.delta, machine, environment,
                     core::PlanFor::kCall, &most, &tiles);
  };
  if (parts.runs_rule && !(plan_rule().ok() && fast)) choice.core = core::kFloat32;
  if (!(plan_delta().ok() && tiles)) choice.between = core::kFloat32;
  parts = LayerGradients(p, choice, any_workspace());
  rule_bytes = most = 0;
  if (parts.runs_rule) {
    if (const Status s = plan_rule(); !s.ok()) return s;
  }
  if (const Status s = plan_delta(); !s.ok()) return s;
  const Status norm = plan_part(gated_rms_norm_backward_catalogue(), parts.norm, machine,
                                environment, core::PlanFor::kCall, &most);
  if (!norm.ok()) return norm;
  for (int i = 0; i < parts.convs; ++i) {
    const Status conv = plan_part(causal_conv1d_backward_catalogue(), parts.conv[i], machine,
                                  environment, core::PlanFor::kCall, &most);
    if (!conv.ok()) return conv;
  }
  plan->kernel = tiles ? "cuda.layer_backward.sm_90" : "cuda.layer_backward.plain";
  plan->workspace_bytes = parts.bytes + std::max(most, rule_bytes);
  plan->keep(choice);
  return ok_status();
}

void launch_norm(const LayerGradients& parts, Launcher& launcher) noexcept {
  gated_norm::PlannedGradients norm{};
  lower_norm_gradients(parts.norm, parts.rest, &norm.params);
  norm.params.forward.row_kinds = parts.row_kinds;
  norm.params.forward.row_kinds_stride = parts.rule.rows.T;
  plan_launch(&norm);
  gated_norm::launch(norm, launcher);
}

void launch_layer(const LayerBackwardProblem& p, const Plan& plan, void* workspace,
                  Launcher& launcher) noexcept {
  const LayerGradients parts(p, plan.kept<LayerBackwardChoice>(), workspace);
  launch_convs(parts.forward, p.separate ? 1 : 3, parts.row_kinds, launcher);
  if (parts.runs_rule) {
    launch_part(layer_delta_kernels(SLUICE_OP_LAYER_PREFILL), parts.rule, parts.rest, launcher);
  }
  if (!launcher.ok()) return;
  launch_norm(parts, launcher);
  launch_part(chunk_backward_catalogue(), parts.delta, parts.rest, launcher);
  for (int i = 0; i < parts.convs; ++i) {
    launch_part(causal_conv1d_backward_catalogue(), parts.conv[i], parts.rest, launcher);
  }
}

constexpr Kernel<LayerBackwardProblem> kCatalogue[] = {
    {"layer_backward", "what chunk_backward takes", Tier::kAny, accept, nullptr, plan_layer,
     launch_layer, nullptr}};

}  // namespace

Catalogue<LayerBackwardProblem> layer_backward_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
