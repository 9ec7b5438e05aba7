// Lowers convolutions, of one tensor or of a layer's three, and lists the kernels of causal_conv1d and of
// causal_conv1d_backward.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::CausalConvBackwardProblem, core::CausalConvProblem, core::Plan, core::present;

conv1d::TokenChannels token_channels(const core::Tensor& t) noexcept {
  return {t.data, t.stride[0], t.stride[1], t.stride[2], t.stride[3], number_type(t.dtype)};
}

conv1d::ConvPool conv_pool(const core::Tensor& t) noexcept {
  if (!present(t)) return {};
  return {t.data, t.shape[0], t.stride[0], t.stride[1], t.stride[2], number_type(t.dtype)};
}

void lower_state(const sluice_conv_state_io& state, conv1d::ConvParams* out) noexcept {
  out->initial = conv_pool(state.initial);
  out->final = conv_pool(state.final);
  out->read_slots = indices_of(state.read_slots);
  out->write_slots = indices_of(state.write_slots);
  out->num_accepted = indices_of(state.num_accepted);
  out->ring = state.form == SLUICE_CONV_STATE_RING;
  out->ring_position = indices_of(state.ring_position);
  out->pad_below = state.pad_below;
  if (!present(state.has_initial_state)) return;
  out->has_initial_state = static_cast<const uint8_t*>(state.has_initial_state.data);
  out->has_initial_stride = state.has_initial_state.stride[0];
}

constexpr int64_t kMost = (int64_t{1} << 31) - 1;  ///< columns of a state, and CTAs

Status accept(const CausalConvProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("causal_conv1d", machine); !s.ok()) return s;
  if (p.L <= kMost) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "causal_conv1d: conv state columns L = %lld, expected below 2^31 (CUDA "
                         "kernels)",
                         static_cast<long long>(p.L));
}

constexpr core::KernelName kNames[] = {
    "cuda.causal_conv1d.any_form", "cuda.causal_conv1d.channel_first",
    "cuda.causal_conv1d.channel_last", "cuda.causal_conv1d.update"};

/// Addresses choose between the kernels too, but none of them has a workspace.
Status plan(const CausalConvProblem& p, const Machine& machine, const Environment&,
            Plan* plan) noexcept {
  auto* const conv = plan->keep_in_place<conv1d::PlannedConv>();
  lower_conv(&p, 1, &conv->params);
  conv1d::plan_launch(machine.multiprocessors, conv);
  plan->kernel = kNames[static_cast<int>(conv->form)];
  return ok_status();
}

void launch(const CausalConvProblem&, const Plan& plan, void*, Launcher& launcher) noexcept {
  conv1d::launch(plan.kept_in_place<conv1d::PlannedConv>(), launcher);
}

constexpr Kernel<CausalConvProblem> kCatalogue[] = {
    {"causal_conv1d", "every option, compute capability 8.0 or newer", Tier::kAny, accept, nullptr,
     plan, launch, [](const Machine&) noexcept { return conv1d::load_kernels(); }}};

conv1d::ChannelGradient channel_gradient(const core::Tensor& t) noexcept {
  if (!present(t)) return {};
  return {t.data, t.stride[0], t.stride[1], number_type(t.dtype)};
}

conv1d::PlannedGradients planned(const CausalConvBackwardProblem& p, void* workspace) noexcept {
  conv1d::PlannedGradients gradients{};
  conv1d::ConvGradientParams& out = gradients.params;
  lower_conv(&p.forward, 1, &out.forward);
  out.d_out = token_channels(p.d_out), out.dx = token_channels(p.dx);
  out.d_final = conv_pool(p.d_final), out.dinitial = conv_pool(p.dinitial);
  out.dweight = channel_gradient(p.dweight), out.dbias = channel_gradient(p.dbias);
  if (present(p.dweight) || present(p.dbias)) out.sums = static_cast<float*>(workspace);
  plan_launch(&gradients);
  return gradients;
}

Status accept_gradients(const CausalConvBackwardProblem&, const Machine& machine) noexcept {
  return check_capability("causal_conv1d_backward", machine);
}

constexpr core::KernelName kGradientNames[] = {"cuda.causal_conv1d_backward.any_form",
                                               "cuda.causal_conv1d_backward.packs.bf16",
                                               "cuda.causal_conv1d_backward.packs.fp16"};

/// Addresses choose between the kernels too, which have one workspace.
Status plan_gradients(const CausalConvBackwardProblem& p, const Machine&, const Environment&,
                      Plan* plan) noexcept {
  const auto [form, params] = planned(p, nullptr);
  if (p.forward.L > kMost || params.most_warps / conv1d::kWarps >= kMost) {
    return Status::failure(Code::kUnsupported,
                           "causal_conv1d_backward: columns L, warps = %lld, %lld, expected below "
                           "2^31, 2^33 (CUDA kernels)",
                           static_cast<long long>(p.forward.L),
                           static_cast<long long>(params.most_warps));
  }
  plan->kernel = kGradientNames[static_cast<int>(form)];
  const bool sums = present(p.dweight) || present(p.dbias);
  const int64_t count = sums ? params.slabs * conv1d::kSums * params.forward.D : 0;
  // No tokens: sums of nothing are still stored.
  plan->workspace_bytes = static_cast<size_t>(sums && count == 0 ? 1 : count) * sizeof(float);
  return ok_status();
}

void launch_gradients(const CausalConvBackwardProblem& p, const Plan&, void* workspace,
                      Launcher& launcher) noexcept {
  conv1d::launch(planned(p, workspace), launcher);
}

constexpr Kernel<CausalConvBackwardProblem> kGradientCatalogue[] = {
    {"causal_conv1d_backward", "every option, compute capability 8.0 or newer", Tier::kAny,
     accept_gradients, nullptr, plan_gradients, launch_gradients,
     [](const Machine&) noexcept { return conv1d::load_gradient_kernels(); }}};

}  // namespace

void lower_conv(const CausalConvProblem* problems, int parts, conv1d::ConvParams* out) noexcept {
  const CausalConvProblem& first = problems[0];
  *out = {};
  out->parts = parts;
  for (int i = 0; i < parts; ++i) {
    const CausalConvProblem& part = problems[i];
    out->part[i] = {token_channels(part.x), token_channels(part.out), out->D, part.C};
    out->D += part.G * part.C;
  }
  out->weight = vector_of(first.weight);
  out->bias = vector_of(first.bias);
  out->silu = first.activation == SLUICE_ACTIVATION_SILU;
  out->cu_seqlens = indices_of(first.rows.cu_seqlens);
  lower_state(first.state, out);
  out->B = first.rows.B;
  out->T = first.rows.T;
  out->N = first.rows.N;
  out->max_tokens = first.rows.max_tokens;
  out->W = static_cast<int32_t>(first.W);
  out->L = static_cast<int32_t>(first.L);
}

void launch_convs(const CausalConvProblem* problems, int at_once, device::RowKind* row_kinds,
                  Launcher& launcher) noexcept {
  for (int i = 0; i < 3 && launcher.ok(); i += at_once) {
    conv1d::PlannedConv conv;
    lower_conv(problems + i, at_once, &conv.params);
    conv.params.row_kinds = row_kinds;
    conv1d::plan_launch(launcher.machine().multiprocessors, &conv);
    conv1d::launch(conv, launcher);
  }
}

Catalogue<CausalConvProblem> causal_conv1d_catalogue() noexcept { return kCatalogue; }

Catalogue<CausalConvBackwardProblem> causal_conv1d_backward_catalogue() noexcept {
  return kGradientCatalogue;
}

}  // namespace sluice::cuda
