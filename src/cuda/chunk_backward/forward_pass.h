// Runs what chunk_backward shares with the forward pass: its stages once more.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_

#include "cuda/chunk_backward/lower.h"
#include "cuda/kernels/backward/launch.h"
#include "cuda/launch.h"

namespace sluice::cuda {

/// The tensors of a call by tensor cores.
backward::TileTensors tile_tensors(const core::DeltaRuleProblem& problem,
                                   const backward::BackwardParams& params) noexcept;
/// Whether the copy engine takes all of them.
bool are_mappable(const core::DeltaRuleProblem& problem,
                  const backward::TileTensors& tensors) noexcept;

/// By tensor cores, behind launch_prepare(): sums of gates, and what the delta rule has of a chunk
/// whatever the state.
void launch_rows(const core::DeltaRuleProblem& problem, const backward::BackwardParams& params,
                 const StageRows& rows, Launcher& launcher) noexcept;
/// The same and the states that enter the chunks, which gradients of rows read, and the gradients of
/// states.
void launch_chains(const core::DeltaRuleProblem& problem, const backward::BackwardParams& params,
                   const backward::TileTensors& tensors, const StageRows& rows,
                   Launcher& launcher) noexcept;
/// The forward pass by plain kernels.
void launch_forward_plain(const backward::BackwardParams& params, const StageRows& rows,
                          Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_
