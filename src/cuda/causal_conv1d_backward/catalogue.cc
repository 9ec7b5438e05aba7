// Lists the kernels of causal_conv1d_backward.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/causal_conv1d/lower.h"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using conv1d_backward::ConvGradientParams, conv1d_backward::Form;
using core::CausalConvBackwardProblem, core::Plan, core::present;

Status accept(const CausalConvBackwardProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("causal_conv1d_backward", machine); !s.ok()) return s;
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  ConvGradientParams params{};
  params.forward.T = p.forward.rows.T, params.forward.B = p.forward.rows.B;
  params.forward.N = p.forward.rows.N, params.forward.D = p.forward.G * p.forward.C;
  params.dinitial.data = p.dinitial.data;
  plan_launch(Form::kAny, &params);
  if (p.forward.L <= kMost && params.warps / conv1d_backward::kWarps < kMost) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "causal_conv1d_backward: columns L, warps = %lld, %lld, expected below "
                         "2^31, 2^33 (CUDA kernels)",
                         static_cast<long long>(p.forward.L), static_cast<long long>(params.warps));
}

void lower(const CausalConvBackwardProblem& p, void* workspace, ConvGradientParams* out) noexcept {
  lower_conv(&p.forward, 1, &out->forward);
  out->d_out = token_channels(p.d_out), out->dx = token_channels(p.dx);
  out->d_final = conv_pool(p.d_final), out->dinitial = conv_pool(p.dinitial);
  if (present(p.dweight)) {
    out->dweight = p.dweight.data, out->dweight_number = number_type(p.dweight.dtype);
    out->dweight_strides[0] = p.dweight.stride[0], out->dweight_strides[1] = p.dweight.stride[1];
  }
  if (present(p.dbias)) {
    out->dbias = p.dbias.data, out->dbias_number = number_type(p.dbias.dtype);
    out->dbias_stride = p.dbias.stride[0];
  }
  if (present(p.dweight) || present(p.dbias)) out->sums = static_cast<float*>(workspace);
}

constexpr core::KernelName kNames[] = {"cuda.causal_conv1d_backward.any_form",
                                       "cuda.causal_conv1d_backward.packs.bf16",
                                       "cuda.causal_conv1d_backward.packs.fp16"};

/// Addresses choose between the kernels too, which have one workspace.
Status plan(const CausalConvBackwardProblem& p, const Machine&, const Environment&,
            Plan* plan) noexcept {
  ConvGradientParams params{};
  lower(p, nullptr, &params);
  const Form form = form_of(params);
  plan_launch(form, &params);
  plan->keep(form);
  plan->kernel = kNames[static_cast<int>(form)];
  const bool sums = params.dweight != nullptr || params.dbias != nullptr;
  const int64_t count = sums ? params.slabs * conv1d_backward::kSums * params.forward.D : 0;
  // No tokens: sums of nothing are still stored.
  plan->workspace_bytes = static_cast<size_t>(sums && count == 0 ? 1 : count) * sizeof(float);
  return ok_status();
}

void launch(const CausalConvBackwardProblem& p, const Plan& plan, void* workspace,
            Launcher& launcher) noexcept {
  ConvGradientParams params{};
  lower(p, workspace, &params);
  const Form form = plan.kept<Form>();
  plan_launch(form, &params);
  conv1d_backward::launch(form, params, launcher);
}

constexpr Kernel<CausalConvBackwardProblem> kCatalogue[] = {
    {"causal_conv1d_backward", "every option, compute capability 8.0 or newer", Tier::kAny, accept,
     nullptr, plan, launch,
     [](const Machine&) noexcept { return conv1d_backward::load_kernels(); }}};

}  // namespace

Catalogue<CausalConvBackwardProblem> causal_conv1d_backward_catalogue() noexcept {
  return kCatalogue;
}

}  // namespace sluice::cuda
