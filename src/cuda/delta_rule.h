// chunk_forward and recurrent_step on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DELTA_RULE_H_
#define SLUICE_CUDA_DELTA_RULE_H_

#include "core/backend.hpp"

namespace sluice::cuda {

/// chunk_forward's entry in the core's table.
Status plan_chunk_forward(const core::DeltaRuleProblem& problem, core::PlanFor purpose,
                          core::Plan* plan) noexcept;
Status run_chunk_forward(const core::DeltaRuleProblem& problem, const core::Plan& plan,
                         sluice_workspace workspace, void* stream) noexcept;

/// Old entry points, for operators that have no catalogue yet. Chooses the kernel for the views' GPU, or refuses with what is supported.
Status select_delta_rule(const core::DeltaRuleProblem& problem, core::KernelName* name) noexcept;
/// Bytes of the fused kernel's work order; 0 where sequences have one length.
size_t delta_rule_workspace(const core::DeltaRuleProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_delta_rule(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                      void* stream) noexcept;
/// SLUICE_CUDA_KERNEL as it was when first asked for; "auto" if unset.
const char* wished_kernel() noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_DELTA_RULE_H_
