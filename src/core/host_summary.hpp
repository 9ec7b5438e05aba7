// Makes chunk_summary of a backend's chunk_forward and chunk_backward, for backends whose memory is
// the host's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_HOST_SUMMARY_HPP_
#define SLUICE_CORE_HOST_SUMMARY_HPP_

#include "core/backend.hpp"

namespace sluice::core {

/// Bytes that a call needs: its rows of outputs, which nobody reads, and the most of its parts.
Status plan_host_summary(const Backend& backend, const ChunkSummaryProblem& problem,
                         Plan* plan) noexcept;

/// Runs the rule from zeros for the addend, or chunk_backward for the gradient's, and the rule on the
/// identity with all values zero for the transition.
Status run_host_summary(const Backend& backend, const ChunkSummaryProblem& problem,
                        sluice_workspace workspace) noexcept;

/// The operator of a backend.
/// @tparam backend gives the backend's table
/// @tparam kName names the kernel
template <const Backend& (*backend)() noexcept, const char* const& kName>
constexpr Operator<ChunkSummaryProblem> host_summary() noexcept {
  return {[](const ChunkSummaryProblem& problem, PlanFor, Plan* plan) noexcept {
            plan->kernel = kName;
            return plan_host_summary(backend(), problem, plan);
          },
          [](const ChunkSummaryProblem& problem, const Plan&, sluice_workspace workspace,
             void*) noexcept { return run_host_summary(backend(), problem, workspace); }};
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_HOST_SUMMARY_HPP_
