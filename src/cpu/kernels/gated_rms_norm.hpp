// Declares gated RMSNorm on the CPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_GATED_RMS_NORM_HPP_
#define SLUICE_CPU_KERNELS_GATED_RMS_NORM_HPP_

#include <cstddef>

#include "core/backend.hpp"

namespace sluice::cpu {

/// Every problem is supported.
Status select_gated_rms_norm(const core::GatedNormProblem& problem,
                             core::KernelName* name) noexcept;

/// Zero.
size_t gated_rms_norm_workspace(const core::GatedNormProblem& problem) noexcept;

/// out = x rsqrt(mean(x^2) + eps) * weight * act(z), float32 arithmetic, one rounding to out's
/// dtype (with ROUND_HF also one of the normalised x to x's dtype). A row's bits depend on that row
/// only.
Status gated_rms_norm(const core::GatedNormProblem& problem, sluice_workspace workspace,
                      void* stream) noexcept;

/// The layer's norm: rows of [B,T,..] that belong to one of the delta rule's sequences. Rows of
/// padded sequences become zeros whatever x and z hold; rows of none are not touched. x is float32;
/// ROUND_HF and ROUND_INPUT round it to out's dtype first.
void layer_norm_rows(const core::GatedNormProblem& problem,
                     const core::DeltaRuleProblem& delta) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_GATED_RMS_NORM_HPP_
