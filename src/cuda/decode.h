// recurrent_step and layer_decode on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_H_
#define SLUICE_CUDA_DECODE_H_

#include "core/backend.hpp"

namespace sluice::cuda {

/// The decode kernel where it applies, else what select_delta_rule() says. No workspace.
Status select_recurrent_step(const core::DeltaRuleProblem& problem,
                             core::KernelName* name) noexcept;
size_t recurrent_step_workspace(const core::DeltaRuleProblem& problem) noexcept;
/// Enqueues one launch on `stream` of the views' GPU; neither allocates nor waits.
Status run_recurrent_step(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                          void* stream) noexcept;

/// The decode kernel, one launch without workspace; for sizes that it does not take, what
/// layer_prefill consists of.
Status select_layer_decode(const core::LayerProblem& problem, core::KernelName* name) noexcept;
size_t layer_decode_workspace(const core::LayerProblem& problem) noexcept;
Status run_layer_decode(const core::LayerProblem& problem, sluice_workspace workspace,
                        void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_DECODE_H_
