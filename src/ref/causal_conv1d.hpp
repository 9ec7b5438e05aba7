// Declares the short causal convolution and its state (docs/math.md section 4).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_CAUSAL_CONV1D_HPP_
#define SLUICE_REF_CAUSAL_CONV1D_HPP_

#include "core/problem.hpp"

namespace sluice::ref {

/// Runs the problem, one (sequence, channel) after another; needs no scratch.
void causal_conv1d(const core::CausalConvProblem& problem) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_CAUSAL_CONV1D_HPP_
