// Launches what chunk_forward's catalogue has planned for the kernels of Hopper GPUs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_FUSED_H_
#define SLUICE_CUDA_CHUNK_FORWARD_FUSED_H_

#include "core/backend.hpp"
#include "cuda/launch.h"

namespace sluice::cuda {

/// Launches a plan of either fused kernel, which keeps a device::CutRequest.
void launch_fused(const core::DeltaRuleProblem& problem, const core::Plan& plan, void* workspace,
                  Launcher& launcher) noexcept;
int load_gated_delta(const Machine& machine) noexcept;
int load_linear_attention(const Machine& machine) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_FUSED_H_
