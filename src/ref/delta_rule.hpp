// Declares chunk_forward and recurrent_step: sequences, heads, states and slots around a form.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_DELTA_RULE_HPP_
#define SLUICE_REF_DELTA_RULE_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// Bytes of scratch that delta_rule<Form>() needs: one state and one block of tokens.
template <class Form>
size_t delta_rule_workspace(const core::DeltaRuleProblem& problem) noexcept;

/// Runs the problem, one (sequence, value head) after another. Form: RecurrentForm or ChunkForm;
/// per-token states (state_writes PER_TOKEN) need RecurrentForm.
template <class Form>
void delta_rule(const core::DeltaRuleProblem& problem, Arena arena) noexcept;

/// Steps with a replay ring; the workspace is that of RecurrentForm.
void ring_steps(const core::DeltaRuleProblem& problem, Arena arena) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_DELTA_RULE_HPP_
