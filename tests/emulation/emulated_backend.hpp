// Choices of the emulated backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "cuda/chunk_forward/cut.h"

namespace sluice::cuda {
/// Of the schedule of the next calls.
extern uint64_t emulation_seed;
/// Of the GPU that the planner plans for.
extern int emulated_multiprocessors;
extern ResidentClusters emulated_clusters;
/// Columns of V that a CTA of the join carries; whether the last round of whole sequences is halved.
extern int emulated_join_columns;
extern bool emulated_halves;
/// CutRequest::lead of calls that are cut into equal segments.
extern int8_t emulated_lead;
/// What the environment would ask for.
extern CutOverride emulated_split;

/// Its chunk_forward: the one-launch kernel only. Also the CUDA backend of an executable that has no
/// other.
const core::Backend& emulated_prefill() noexcept;

/// What the planner leaves in the workspace, with the horizons after it.
struct EmulatedPlan {
  std::string trouble;  ///< empty, or why the emulation ended
  device::SegmentHeader header;
  std::vector<device::Segment> segments, left;
  std::vector<int32_t> horizon;
  std::vector<device::Transition> transitions;
};
EmulatedPlan emulate_plan(const core::DeltaRuleProblem& problem, const device::CutRequest& request);
}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
