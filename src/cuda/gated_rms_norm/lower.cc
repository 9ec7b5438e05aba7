// Lowers a validated gated norm to the parameters of its kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gated_rms_norm/lower.h"

#include <algorithm>

#include "cuda/lower_views.h"

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

void lower_norm(const GatedNormProblem& problem, sluice_dtype rounded_to,
                NormParams* out) noexcept {
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

}  // namespace sluice::cuda
