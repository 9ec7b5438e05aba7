// Runs what chunk_backward shares with the forward pass: its stages once more, and the chain of
// states, forwards and backwards.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_

#include "cuda/chunk_backward/lower.h"
#include "cuda/launch.h"

namespace sluice::cuda {

/// Which chains go by Hopper's chunk_h, of a call by tensor cores.
struct StateKernels {
  bool hopper_states;  ///< the states of the forward pass; else by chunk_h of any GPU
  bool hopper_chain;   ///< the chain of gradients; else by a kernel of kernels/backward
};
StateKernels choose_state_kernels(const core::DeltaRuleProblem& problem,
                                  const backward::BackwardParams& params,
                                  const StageRows& rows) noexcept;

/// The forward pass by tensor cores: A_inverse, w, v_new and the states that enter the chunks.
void launch_forward_tiles(const core::DeltaRuleProblem& problem,
                          const backward::BackwardParams& params, const StageRows& rows,
                          const StateKernels& kernels, Launcher& launcher) noexcept;
/// Gradients of states by Hopper's chunk_h.
void launch_hopper_chain(const core::DeltaRuleProblem& problem,
                         const backward::BackwardParams& params, Launcher& launcher) noexcept;
/// The forward pass by plain kernels.
void launch_forward_plain(const backward::BackwardParams& params, const StageRows& rows,
                          Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_FORWARD_PASS_H_
