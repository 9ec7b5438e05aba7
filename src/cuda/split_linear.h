// How linear attention's segments share one launch: as the CTAs of clusters, or each summing up all
// before it. A function of sizes alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SPLIT_LINEAR_H_
#define SLUICE_CUDA_SPLIT_LINEAR_H_

#include "core/problem.hpp"
#include "cuda/device/segments.hpp"
#include "cuda/room.h"

namespace sluice::cuda {

/// Whether a rule needs no workspace, planner or join.
inline bool is_one_launch(device::SplitRule rule) noexcept {
  return rule == device::SplitRule::kCluster || rule == device::SplitRule::kPrefix;
}

/// Whether the kernel of clusters takes a problem, and that of prefixes.
bool takes_clusters(const core::DeltaRuleProblem& problem) noexcept;
bool takes_prefix(const core::DeltaRuleProblem& problem) noexcept;

/// The request of a rule of one launch.
device::SplitRequest in_one_launch(const device::SplitRequest& request, device::SplitRule rule,
                                   int32_t value) noexcept;

/// A way of one launch, and its time in units of the model of segments.
struct OneLaunch {
  float time;
  int32_t value;  ///< 0: none
  device::SplitRule rule;
};

/// The best one.
OneLaunch look_at_one_launch(const core::DeltaRuleProblem& problem, const Room& room) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SPLIT_LINEAR_H_
