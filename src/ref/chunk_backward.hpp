// Declares gradients of the recurrence, token by token, in float64.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_CHUNK_BACKWARD_HPP_
#define SLUICE_REF_CHUNK_BACKWARD_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// Bytes of scratch of chunk_backward(): about 2 sqrt(T) states, and the gradients of q and k of
/// one key head.
size_t chunk_backward_workspace(const core::ChunkBackwardProblem& problem) noexcept;

/// Runs the problem, one (sequence, key head) after another; independent of the chunk form.
void chunk_backward(const core::ChunkBackwardProblem& problem, Arena arena) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_CHUNK_BACKWARD_HPP_
