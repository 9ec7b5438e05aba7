// Gated RMSNorm, norm before gate (docs/math.md section 5).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_GATED_RMS_NORM_HPP_
#define SLUICE_REF_GATED_RMS_NORM_HPP_

#include "core/problem.hpp"

namespace sluice::ref {

/// out = x rsqrt(mean(x^2) + eps) * weight * act(z) over rows of V, one rounding where stored.
void gated_rms_norm(const core::GatedNormProblem& problem) noexcept;

/// The row at the first four indices `row` of problem.out. problem.x may be a float64 view;
/// `rounding` says where the row rounds, to elements of `rounded_to`.
void gated_rms_norm_row(const core::GatedNormProblem& problem, const int64_t (&row)[4],
                        sluice_dtype rounded_to) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_GATED_RMS_NORM_HPP_
