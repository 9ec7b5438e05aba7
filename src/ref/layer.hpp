// Declares the layer between its input projections and out_proj, as its parts one after another.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_LAYER_HPP_
#define SLUICE_REF_LAYER_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// Bytes of scratch: the convolved q, k, v and the core output of all rows, and the delta rule's
/// own.
size_t layer_workspace(const core::LayerProblem& problem) noexcept;

/// Convolution, delta rule (token by token) and gated norm. Between the parts everything stays in
/// float64; only norm.rounding may ask for a rounding to out's dtype.
void layer(const core::LayerProblem& problem, Arena arena) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_LAYER_HPP_
