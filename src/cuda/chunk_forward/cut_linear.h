// Chooses between the two ways in which linear attention computes all segments of a sequence in one
// launch: as the CTAs of a cluster, or with each segment summing up all tokens before it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_CUT_LINEAR_H_
#define SLUICE_CUDA_CHUNK_FORWARD_CUT_LINEAR_H_

#include "core/problem.hpp"
#include "cuda/device/segments.hpp"
#include "cuda/machine.h"

namespace sluice::cuda {

/// Whether the kernel of clusters takes a problem, and that of prefixes.
bool takes_clusters(const core::DeltaRuleProblem& problem) noexcept;
bool takes_prefixes(const core::DeltaRuleProblem& problem) noexcept;

/// A cut of one launch, and its time in units of device::cut_time().
struct OneLaunchCut {
  float time = 0;
  device::CutRule rule = device::CutRule::kWhole;  ///< kWhole: there is none
  int32_t parts = 0;                               ///< CTAs of a cluster, or blocks of a segment
};

/// The fastest one, by a model of time.
OneLaunchCut fastest_in_one_launch(const core::DeltaRuleProblem& problem,
                                   const Machine& machine) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_CUT_LINEAR_H_
