// Lists the kernels of gated_rms_norm_backward.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/catalogues.h"
#include "cuda/gated_rms_norm/lower.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::GatedNormBackwardProblem, core::Plan;
using gated_norm_backward::Form, gated_norm_backward::NormGradientParams;

Status accept(const GatedNormBackwardProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("gated_rms_norm_backward", machine); !s.ok()) return s;
  NormGradientParams params{};
  lower_norm_gradients(p, nullptr, &params);
  plan_launch(Form::kAny, &params);
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (params.ctas < kMost) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "gated_rms_norm_backward: rows = %lld, expected below 2^38 (CUDA kernels)",
                         static_cast<long long>(params.forward.rows));
}

constexpr core::KernelName kNames[] = {"cuda.gated_rms_norm_backward.any_form",
                                       "cuda.gated_rms_norm_backward.packs.bf16",
                                       "cuda.gated_rms_norm_backward.packs.fp16"};

/// Addresses choose between the kernels too: room for the larger number of sums.
Status plan(const GatedNormBackwardProblem& p, const Machine&, const Environment&,
            Plan* plan) noexcept {
  NormGradientParams params{};
  lower_norm_gradients(p, nullptr, &params);
  const Form form = form_of(params);
  plan->keep(form);
  plan->kernel = kNames[static_cast<int>(form)];
  plan->workspace_bytes = 0;
  if (params.dweight == nullptr) return ok_status();
  plan_launch(Form::kAny, &params);
  const int64_t most = params.sum_rows;
  plan_launch(form, &params);
  const int64_t count = std::max(most, params.sum_rows) * params.forward.V;
  // No rows: sums of nothing are still stored.
  plan->workspace_bytes = static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float);
  return ok_status();
}

void launch(const GatedNormBackwardProblem& p, const Plan& plan, void* workspace,
            Launcher& launcher) noexcept {
  NormGradientParams params{};
  lower_norm_gradients(p, workspace, &params);
  const Form form = plan.kept<Form>();
  plan_launch(form, &params);
  gated_norm_backward::launch(form, params, launcher);
}

constexpr Kernel<GatedNormBackwardProblem> kCatalogue[] = {
    {"gated_rms_norm_backward", "every option, compute capability 8.0 or newer", Tier::kAny, accept,
     nullptr, plan, launch,
     [](const Machine&) noexcept { return gated_norm_backward::load_kernels(); }}};

}  // namespace

void lower_norm_gradients(const GatedNormBackwardProblem& p, void* workspace,
                          NormGradientParams* out) noexcept {
  lower_norm(p.forward, p.forward.x.dtype, &out->forward);
  std::copy_n(p.d_out.shape, 4, out->forward.shape);  // of out, which is absent
  out->d_out = norm_rows(p.d_out), out->dx = norm_rows(p.dx), out->dz = norm_rows(p.dz);
  if (!core::present(p.dweight)) return;
  out->dweight = p.dweight.data, out->dweight_stride = p.dweight.stride[0];
  out->dweight_number = number_type(p.dweight.dtype);
  out->sums = static_cast<float*>(workspace);
}

Catalogue<GatedNormBackwardProblem> gated_rms_norm_backward_catalogue() noexcept {
  return kCatalogue;
}

}  // namespace sluice::cuda
