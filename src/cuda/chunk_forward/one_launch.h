// Enters the prefill kernels of Hopper GPUs in chunk_forward's catalogue, for other operators too
// that contain a prefill.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_ONE_LAUNCH_H_
#define SLUICE_CUDA_CHUNK_FORWARD_ONE_LAUNCH_H_

#include "cuda/catalogue.h"

namespace sluice::cuda {

/// Gated delta rule, linear attention, and both with key-wise gates. Their plans keep a
/// device::CutRequest.
Catalogue<core::DeltaRuleProblem> one_launch_kernels() noexcept;

/// Launches a plan of either.
void launch_one_launch(const core::DeltaRuleProblem& problem, const core::Plan& plan,
                       void* workspace, Launcher& launcher) noexcept;
int load_gated_delta(const Machine& machine) noexcept;
int load_linear_attention(const Machine& machine) noexcept;
int load_key_gates(const Machine& machine) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_ONE_LAUNCH_H_
