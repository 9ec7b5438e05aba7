// Lowers validated problems to the parameters of the prefill and generic kernels: no checks, no CUDA
// calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_LOWER_H_
#define SLUICE_CUDA_CHUNK_FORWARD_LOWER_H_

#include "core/problem.hpp"
#include "cuda/chunk_forward/launch.h"
#include "cuda/kernels/generic/params.h"

namespace sluice::cuda {

/// A prefill for the one-launch kernels.
device::PrefillParams lower_prefill(const core::DeltaRuleProblem& problem,
                                    const device::CutRequest& cut) noexcept;
/// Where a launch prepares what the passes read, in a workspace of prefill_workspace() bytes.
void place_prepared(const core::DeltaRuleProblem& problem, const device::CutRequest& cut,
                    void* workspace, device::PrefillParams* params) noexcept;
prefill::MappedTensors lower_tensors(const core::DeltaRuleProblem& problem) noexcept;

/// A prefill or a step for the generic kernel.
generic::GenericParams lower_generic(const core::DeltaRuleProblem& problem) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_LOWER_H_
