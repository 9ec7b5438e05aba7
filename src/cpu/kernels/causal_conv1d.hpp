// Declares the short causal depthwise convolution on the CPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CAUSAL_CONV1D_HPP_
#define SLUICE_CPU_KERNELS_CAUSAL_CONV1D_HPP_

#include <cstddef>

#include "core/backend.hpp"

namespace sluice::cpu {

/// Every problem is supported.
Status select_causal_conv1d(const core::CausalConvProblem& problem,
                            core::KernelName* name) noexcept;

/// Zero: tiles live on the workers' stacks.
size_t causal_conv1d_workspace(const core::CausalConvProblem& problem) noexcept;

/// out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]) and the new states, as sluice.h has
/// it. float32 arithmetic, fused multiply-adds in the order w = 0 .. W-1 on top of the bias, SiLU
/// to about 2 ulp, one rounding to out's dtype. An output's bits depend on its own inputs only.
Status causal_conv1d(const core::CausalConvProblem& problem, sluice_workspace workspace,
                     void* stream) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CAUSAL_CONV1D_HPP_
