// gated_rms_norm on CUDA: what the core's table points to, and its lowering, which a layer shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_GATED_RMS_NORM_H_
#define SLUICE_CUDA_GATED_RMS_NORM_H_

#include "core/backend.hpp"
#include "cuda/kernels/gated_norm/params.h"

namespace sluice::cuda {

/// @param rounded_to what ROUND_HF and ROUND_INPUT round to on the way
gated_norm::NormParams lower_norm(const core::GatedNormProblem& problem,
                                  sluice_dtype rounded_to) noexcept;
/// [.., .., .., .., V] of rank 5.
gated_norm::NormRows norm_rows(const core::Tensor& tensor) noexcept;

/// Everything is supported on compute capability 8.0 or newer.
Status select_gated_rms_norm(const core::GatedNormProblem& problem,
                             core::KernelName* name) noexcept;
/// None.
size_t gated_rms_norm_workspace(const core::GatedNormProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_gated_rms_norm(const core::GatedNormProblem& problem, sluice_workspace workspace,
                          void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_GATED_RMS_NORM_H_
