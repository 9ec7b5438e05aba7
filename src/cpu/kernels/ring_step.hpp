// Declares recurrent_step with a replay buffer on the CPU; parallel over sequences and value heads.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_RING_STEP_HPP_
#define SLUICE_CPU_KERNELS_RING_STEP_HPP_

#include <cstddef>

#include "core/problem.hpp"

namespace sluice::cpu {

/// Of a problem whose ring is present.
size_t ring_step_workspace(const core::DeltaRuleProblem& problem) noexcept;
/// memory: that workspace.
void ring_step(const core::DeltaRuleProblem& problem, float* memory) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_RING_STEP_HPP_
