// Lowers validated problems to what kernels take: no checks, no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LOWER_H_
#define SLUICE_CUDA_LOWER_H_

#include "core/problem.hpp"
#include "cuda/kernels/generic/params.h"
#include "cuda/prefill/launch.h"

namespace sluice::cuda {

/// chunk_forward for the fused kernel.
device::PrefillParams lower_fused(const core::DeltaRuleProblem& problem,
                                  const device::SplitRequest& split) noexcept;
prefill::Tiles lower_tiles(const core::DeltaRuleProblem& problem) noexcept;

/// Either operator for the generic kernel.
generic::GenericParams lower_generic(const core::DeltaRuleProblem& problem) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LOWER_H_
