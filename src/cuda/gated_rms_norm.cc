// SPDX-License-Identifier: Apache-2.0
#include "cuda/gated_rms_norm.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/gpu.h"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/lower_views.h"
#include "cuda/select.h"

namespace sluice::cuda {
namespace {

using core::GatedNormProblem;
using gated_norm::NormParams, gated_norm::Rounding;

Rounding rounding_of(sluice_norm_rounding rounding) noexcept {
  if (rounding == SLUICE_NORM_ROUND_ONCE) return Rounding::kNone;
  return rounding == SLUICE_NORM_ROUND_HF ? Rounding::kInputAndNormalised : Rounding::kInput;
}

}  // namespace

gated_norm::NormRows norm_rows(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  return {t.data, {t.stride[0], t.stride[1], t.stride[2], t.stride[3]}, number_type(t.dtype)};
}

NormParams lower_norm(const GatedNormProblem& problem, sluice_dtype rounded_to) noexcept {
  NormParams out{};
  out.x = norm_rows(problem.x);
  out.z = norm_rows(problem.z);
  out.out = norm_rows(problem.out);
  out.weight = vector_of(problem.weight);
  std::copy_n(problem.out.shape, 4, out.shape);
  out.V = problem.V;
  out.inverse_V = 1.0f / static_cast<float>(problem.V);
  out.eps = static_cast<float>(problem.eps);
  out.rounding = rounding_of(problem.rounding);
  out.rounded_to = number_type(rounded_to);
  out.silu = problem.activation == SLUICE_ACTIVATION_SILU;
  return out;
}

Status select_gated_rms_norm(const GatedNormProblem& p, core::KernelName* name) noexcept {
  const int capability = compute_capability(p.out.device.index);
  if (capability < kOldestCapability) {
    return Status::failure(Code::kUnsupported,
                           "gated_rms_norm: compute capability = %d.%d, expected 8.0 or newer "
                           "(CUDA kernels)",
                           capability / 10, capability % 10);
  }
  *name = "cuda.gated_rms_norm";
  return ok_status();
}

size_t gated_rms_norm_workspace(const GatedNormProblem&) noexcept { return 0; }

Status run_gated_rms_norm(const GatedNormProblem& problem, sluice_workspace,
                          void* stream) noexcept {
  const DeviceGuard guard(problem.out.device.index);
  int error = guard.error();
  if (error == cudaSuccess) {
    error = gated_norm::launch(lower_norm(problem, problem.x.dtype),
                               target_of(problem.out.device.index), stream);
  }
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "gated_rms_norm: launch = %s, expected cudaSuccess",
                         cudaGetErrorName(static_cast<cudaError_t>(error)));
}

}  // namespace sluice::cuda
