// Lowers gradients of gated norms to what their kernels take: no checks, no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_GATED_RMS_NORM_BACKWARD_LOWER_H_
#define SLUICE_CUDA_GATED_RMS_NORM_BACKWARD_LOWER_H_

#include "core/problem.hpp"
#include "cuda/kernels/gated_norm/gradient_params.h"

namespace sluice::cuda {

/// @param workspace where sums of dweight go, if that is wanted
void lower_norm_gradients(const core::GatedNormBackwardProblem& problem, void* workspace,
                          gated_norm_backward::NormGradientParams* out) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_GATED_RMS_NORM_BACKWARD_LOWER_H_
