// Enters kernels of the delta rule in catalogues: those of Hopper GPUs, for other operators too that contain a
// prefill, and the generic one: token by token, with every option, on every GPU since Ampere.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_ROWS_H_
#define SLUICE_CUDA_CHUNK_FORWARD_ROWS_H_

#include "cuda/catalogue.h"

namespace sluice::cuda {

Status accepts_generic(const core::DeltaRuleProblem& problem, const Machine& machine) noexcept;
Status plan_generic(const core::DeltaRuleProblem& problem, const Machine& machine,
                    const Environment& environment, core::Plan* plan) noexcept;
void launch_generic(const core::DeltaRuleProblem& problem, const core::Plan& plan, void* workspace,
                    Launcher& launcher) noexcept;
int load_generic(const Machine& machine) noexcept;

/// The entry, last of the catalogues of chunk_forward and recurrent_step.
/// @param name "<operator>.generic"; static storage
constexpr Kernel<core::DeltaRuleProblem> generic_kernel(const char* name) noexcept {
  return {name,
          "every rule, option, dtype and stride, K <= 512, any V, compute capability 8.0 or newer",
          Tier::kGeneric,
          accepts_generic,
          nullptr,
          plan_generic,
          launch_generic,
          load_generic};
}

/// Gated delta rule, linear attention, and both with key-wise gates. Their plans keep a
/// device::CutRequest.
Catalogue<core::DeltaRuleProblem> one_launch_kernels() noexcept;

/// Launches a plan of either.
void launch_one_launch(const core::DeltaRuleProblem& problem, const core::Plan& plan,
                       void* workspace, Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_ROWS_H_
