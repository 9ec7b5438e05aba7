// How the fused prefill kernel spreads long sequences over a GPU: what the caller and the
// environment ask for, made into a request to the planner. A function of sizes alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SPLIT_H_
#define SLUICE_CUDA_SPLIT_H_

#include "core/problem.hpp"
#include "cuda/kernels/chunk_forward/split.hpp"
#include "cuda/room.h"
#include "sluice/status.hpp"

namespace sluice::cuda {

/// SLUICE_CUDA_SPLIT and SLUICE_CUDA_HISTORY: used where the caller leaves the choice.
struct SplitWish {
  sluice_split split = SLUICE_SPLIT_AUTO;
  int32_t value = 0;
  int32_t cluster = 0;  ///< CTAs of a cluster, for linear attention where split is AUTO; 0: no wish
  int32_t prefix = 0;   ///< blocks of a segment that sums up all before it; likewise
  bool strict = false;
};

/// `split`: auto, never, columns, length, a number of segments, or cluster2, cluster4, cluster6,
/// cluster8, prefix1, prefix2, prefix4; `history`: auto or strict. Null or empty is auto.
/// kInvalidArgument for anything else.
Status parse_split(const char* split, const char* history, SplitWish* wish) noexcept;

/// The request for a problem that the fused kernel takes.
chunk_forward::SplitRequest choose_split(const core::DeltaRuleProblem& problem, const Room& room,
                                         const SplitWish& wish) noexcept;

/// Of linear attention's kernel names, whose order is this: 0 whole, 1 in 64 columns of V, 2 cut, 3
/// both, 4 in clusters, 5 with prefixes.
int linear_way(const chunk_forward::SplitRequest& request, int64_t V) noexcept;

/// Scratch bytes of a request.
size_t split_workspace(const core::DeltaRuleProblem& problem,
                       const chunk_forward::SplitRequest& request) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SPLIT_H_
