// Lowers gated norms and their gradients to what their kernels take: no checks, no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_GATED_RMS_NORM_LOWER_H_
#define SLUICE_CUDA_GATED_RMS_NORM_LOWER_H_

#include "core/problem.hpp"
#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda {

/// @param rounded_to what ROUND_HF and ROUND_INPUT round to on the way
void lower_norm(const core::GatedNormProblem& problem, sluice_dtype rounded_to,
                gated_norm::NormParams* out) noexcept;
/// [.., .., .., .., V] of rank 5.
gated_norm::NormRows norm_rows(const core::Tensor& tensor) noexcept;

/// @param workspace where sums of dweight go, if that is wanted
void lower_norm_gradients(const core::GatedNormBackwardProblem& problem, void* workspace,
                          gated_norm::NormGradientParams* out) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_GATED_RMS_NORM_LOWER_H_
