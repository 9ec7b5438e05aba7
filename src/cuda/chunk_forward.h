// chunk_forward on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_H_
#define SLUICE_CUDA_CHUNK_FORWARD_H_

#include "core/backend.hpp"

namespace sluice::cuda {

/// Chooses the fused prefill kernel, or refuses with what it supports.
Status select_chunk_forward(const core::DeltaRuleProblem& problem,
                            core::KernelName* kernel) noexcept;
/// Bytes of the planner's work order; 0 where sequences have one length.
size_t chunk_forward_workspace(const core::DeltaRuleProblem& problem) noexcept;
/// Enqueues on `stream` of the views' device; neither allocates nor waits.
Status run_chunk_forward(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                         void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_H_
