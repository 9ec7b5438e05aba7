// Old names of what chunk_forward/cut.h does, for operators that have no catalogue yet.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SPLIT_H_
#define SLUICE_CUDA_SPLIT_H_

#include "cuda/chunk_forward/cut.h"
#include "cuda/room.h"

namespace sluice::cuda {

inline device::CutRequest choose_split(const core::DeltaRuleProblem& problem, const Room& room,
                                       const CutOverride& wish) noexcept {
  return choose_cut(problem, {0, kHopperCapability, room.multiprocessors, room.clusters}, wish);
}
inline int linear_way(const device::CutRequest& cut, int64_t V) noexcept {
  return cut_suffix(cut, V);
}
inline size_t split_workspace(const core::DeltaRuleProblem& problem,
                              const device::CutRequest& cut) noexcept {
  return cut_workspace(problem, cut);
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SPLIT_H_
