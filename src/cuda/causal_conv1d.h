// causal_conv1d on CUDA: what the core's table points to, and its lowering, which a layer shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CAUSAL_CONV1D_H_
#define SLUICE_CUDA_CAUSAL_CONV1D_H_

#include "core/backend.hpp"
#include "cuda/kernels/conv1d/params.h"

namespace sluice::cuda {

/// `parts` problems (1 to 3) over slices of the same channels, in their order, as one launch:
/// weights, bias and states are those of the first, whose slices the others continue.
conv1d::ConvParams lower_conv(const core::CausalConvProblem* problems, int parts) noexcept;

/// Everything is supported on compute capability 8.0 or newer.
Status select_causal_conv1d(const core::CausalConvProblem& problem,
                            core::KernelName* name) noexcept;
/// None.
size_t causal_conv1d_workspace(const core::CausalConvProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_causal_conv1d(const core::CausalConvProblem& problem, sluice_workspace workspace,
                         void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CAUSAL_CONV1D_H_
