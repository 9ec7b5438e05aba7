// Old names of what chunk_forward/ does, for operators that have no catalogue yet.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SELECT_H_
#define SLUICE_CUDA_SELECT_H_

#include "core/backend.hpp"
#include "cuda/split.h"

namespace sluice::cuda {

struct Gpu {
  int capability = 0;  ///< 10 major + minor
  int multiprocessors = 0;
  Clusters clusters{};

  Room room() const noexcept { return {multiprocessors, clusters}; }
  Machine machine() const noexcept { return {0, capability, multiprocessors, clusters}; }
};

struct KernelChoice {
  core::KernelName name = "";
  device::CutRequest split;
};

Status choose_kernel(const core::DeltaRuleProblem& problem, const Gpu& gpu, const Environment& wish,
                     KernelChoice* choice) noexcept;
bool may_be_fused(const core::DeltaRuleProblem& problem, const Gpu& gpu,
                  const Environment& wish) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SELECT_H_
