// Lowers gated norms and their gradients, and lists the kernels of gated_rms_norm and of
// gated_rms_norm_backward.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/catalogues.h"
#include "cuda/gated_rms_norm/lower.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::GatedNormBackwardProblem, core::GatedNormProblem, core::Plan;
using gated_norm::Rounding;

Rounding rounding_of(sluice_norm_rounding rounding) noexcept {
  if (rounding == SLUICE_NORM_ROUND_ONCE) return Rounding::kNone;
  return rounding == SLUICE_NORM_ROUND_HF ? Rounding::kInputAndNormalised : Rounding::kInput;
}

Status accept(const GatedNormProblem&, const Machine& machine) noexcept {
  return check_capability("gated_rms_norm", machine);
}

constexpr core::KernelName kNames[] = {
    "cuda.gated_rms_norm.any_form", "cuda.gated_rms_norm.token_rows",
    "cuda.gated_rms_norm.four_tokens", "cuda.gated_rms_norm.one_axis"};

/// Addresses choose between the kernels too, but none of them has a workspace.
Status plan(const GatedNormProblem& p, const Machine& machine, const Environment&,
            Plan* plan) noexcept {
  auto* const norm = plan->keep_in_place<gated_norm::PlannedNorm>();
  lower_norm(p, p.x.dtype, &norm->params);
  gated_norm::plan_launch(machine.multiprocessors, norm);
  plan->kernel = kNames[static_cast<int>(norm->form)];
  return ok_status();
}

void launch(const GatedNormProblem&, const Plan& plan, void*, Launcher& launcher) noexcept {
  gated_norm::launch(plan.kept_in_place<gated_norm::PlannedNorm>(), launcher);
}

constexpr Kernel<GatedNormProblem> kCatalogue[] = {
    {"gated_rms_norm", "every option, compute capability 8.0 or newer", Tier::kAny, accept, nullptr,
     plan, launch, [](const Machine&) noexcept { return gated_norm::load_kernels(); }}};

gated_norm::PlannedGradients planned(const GatedNormBackwardProblem& p, void* workspace) noexcept {
  gated_norm::PlannedGradients gradients{};
  lower_norm_gradients(p, workspace, &gradients.params);
  plan_launch(&gradients);
  return gradients;
}

Status accept_gradients(const GatedNormBackwardProblem&, const Machine& machine) noexcept {
  return check_capability("gated_rms_norm_backward", machine);
}

constexpr core::KernelName kGradientNames[] = {"cuda.gated_rms_norm_backward.any_form",
                                               "cuda.gated_rms_norm_backward.packs.bf16",
                                               "cuda.gated_rms_norm_backward.packs.fp16"};

/// Addresses choose between the kernels too: room for the larger number of sums.
Status plan_gradients(const GatedNormBackwardProblem& p, const Machine&, const Environment&,
                      Plan* plan) noexcept {
  const auto [form, params] = planned(p, nullptr);
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (params.most_sums / gated_norm::kWarps >= kMost) {
    return Status::failure(
        Code::kUnsupported,
        "gated_rms_norm_backward: rows = %lld, expected below 2^38 (CUDA kernels)",
        static_cast<long long>(params.forward.rows));
  }
  plan->kernel = kGradientNames[static_cast<int>(form)];
  plan->workspace_bytes = 0;
  if (params.dweight.data == nullptr) return ok_status();
  // No rows: sums of nothing are still stored.
  const int64_t count = std::max<int64_t>(params.most_sums * params.forward.V, 1);
  plan->workspace_bytes = static_cast<size_t>(count) * sizeof(float);
  return ok_status();
}

void launch_gradients(const GatedNormBackwardProblem& p, const Plan&, void* workspace,
                      Launcher& launcher) noexcept {
  gated_norm::launch(planned(p, workspace), launcher);
}

constexpr Kernel<GatedNormBackwardProblem> kGradientCatalogue[] = {
    {"gated_rms_norm_backward", "every option, compute capability 8.0 or newer", Tier::kAny,
     accept_gradients, nullptr, plan_gradients, launch_gradients,
     [](const Machine&) noexcept { return gated_norm::load_gradient_kernels(); }}};

}  // namespace

gated_norm::NormRows norm_rows(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  return {t.data, {t.stride[0], t.stride[1], t.stride[2], t.stride[3]}, number_type(t.dtype)};
}

void lower_norm(const GatedNormProblem& problem, sluice_dtype rounded_to,
                gated_norm::NormParams* out) noexcept {
  *out = {};
  out->x = norm_rows(problem.x);
  out->z = norm_rows(problem.z);
  out->out = norm_rows(problem.out);
  out->weight = vector_of(problem.weight);
  std::copy_n(problem.out.shape, 4, out->shape);
  out->V = problem.V;
  out->inverse_V = 1.0f / static_cast<float>(problem.V);
  out->eps = static_cast<float>(problem.eps);
  out->rounding = rounding_of(problem.rounding);
  out->rounded_to = number_type(rounded_to);
  out->silu = problem.activation == SLUICE_ACTIVATION_SILU;
}

void lower_norm_gradients(const GatedNormBackwardProblem& p, void* workspace,
                          gated_norm::NormGradientParams* out) noexcept {
  lower_norm(p.forward, p.forward.x.dtype, &out->forward);
  std::copy_n(p.d_out.shape, 4, out->forward.shape);  // of out, which is absent
  out->d_out = norm_rows(p.d_out), out->dx = norm_rows(p.dx), out->dz = norm_rows(p.dz);
  out->dweight = norm_rows(p.dweight);
  if (core::present(p.dweight)) out->sums = static_cast<float*>(workspace);
}

Catalogue<GatedNormProblem> gated_rms_norm_catalogue() noexcept { return kCatalogue; }

Catalogue<GatedNormBackwardProblem> gated_rms_norm_backward_catalogue() noexcept {
  return kGradientCatalogue;
}

}  // namespace sluice::cuda
