// Which kernel computes a delta rule problem: a function of the problem, the GPU's compute
// capability and the caller's wish, and of nothing else.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SELECT_H_
#define SLUICE_CUDA_SELECT_H_

#include "core/backend.hpp"
#include "cuda/split.h"

namespace sluice::cuda {

enum class DeltaKernel {
  kFused,    ///< kernels/chunk_forward, linear_attention: Hopper, K of 64 or 128, 16-bit
  kGeneric,  ///< kernels/generic: token by token, everything else
};

/// What a choice depends on besides the problem.
struct Gpu {
  int capability = 0;  ///< 10 major + minor
  int multiprocessors = 0;
  Clusters clusters{};

  Room room() const noexcept { return {multiprocessors, clusters}; }
};

struct KernelChoice {
  DeltaKernel kernel = DeltaKernel::kGeneric;
  core::KernelName name = "";
  device::SplitRequest split;  ///< of the fused kernel
};

/// The fused kernel where it applies, else the generic one, else kUnsupported with what is
/// supported; a wish for one kernel gives that one or its reason to refuse.
Status choose_kernel(const core::DeltaRuleProblem& problem, const Gpu& gpu, const Environment& wish,
                     KernelChoice* choice) noexcept;

/// Whether the fused kernel might be chosen for these sizes, dtypes and strides at some address.
/// WHY: workspaces are asked for before tensors exist.
bool may_be_fused(const core::DeltaRuleProblem& problem, const Gpu& gpu,
                  const Environment& wish) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SELECT_H_
