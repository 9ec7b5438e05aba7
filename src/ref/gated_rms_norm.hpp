// Declares gated RMSNorm, norm before gate (docs/math.md section 5).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_GATED_RMS_NORM_HPP_
#define SLUICE_REF_GATED_RMS_NORM_HPP_

#include "core/problem.hpp"

namespace sluice::ref {

/// out = x rsqrt(mean(x^2) + eps) * weight * act(z) over rows of V, one rounding where stored.
void gated_rms_norm(const core::GatedNormProblem& problem) noexcept;

/// The row at the first four indices `row` of problem.out. problem.x may be a float64 view that
/// stands for a tensor of `rounded_to`: with ROUND_INPUT and ROUND_HF it is rounded to that first
/// (x of that dtype does not change), with ROUND_HF the normalised x as well.
void gated_rms_norm_row(const core::GatedNormProblem& problem, const int64_t (&row)[4],
                        sluice_dtype rounded_to) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_GATED_RMS_NORM_HPP_
