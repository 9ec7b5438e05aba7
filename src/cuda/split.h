// How the fused prefill kernel spreads long sequences over a GPU: what the caller and the
// environment ask for, made into a request to the planner. A function of sizes alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SPLIT_H_
#define SLUICE_CUDA_SPLIT_H_

#include "core/problem.hpp"
#include "cuda/device/segments.hpp"
#include "cuda/environment.h"
#include "cuda/room.h"

namespace sluice::cuda {

/// The request for a problem that the fused kernel takes.
device::SplitRequest choose_split(const core::DeltaRuleProblem& problem, const Room& room,
                                  const CutOverride& wish) noexcept;

/// Of linear attention's kernel names, whose order is this: 0 whole, 1 in 64 columns of V, 2 cut, 3
/// both, 4 in clusters, 5 with prefixes.
int linear_way(const device::SplitRequest& request, int64_t V) noexcept;

/// Scratch bytes of a request.
size_t split_workspace(const core::DeltaRuleProblem& problem,
                       const device::SplitRequest& request) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SPLIT_H_
