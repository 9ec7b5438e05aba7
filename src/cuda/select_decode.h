// Whether the decode kernel takes a problem, and the problem as the kernel takes it: no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SELECT_DECODE_H_
#define SLUICE_CUDA_SELECT_DECODE_H_

#include "core/backend.hpp"
#include "cuda/kernels/decode/params.h"

namespace sluice::cuda {

/// By sizes, dtypes and strides. capability: 10 major + minor. kUnsupported with what is supported.
Status check_decode(const core::DeltaRuleProblem& problem, int capability) noexcept;
Status check_decode(const core::LayerProblem& problem, int capability) noexcept;
/// By the addresses of the states. WHY apart: workspaces are asked for before tensors exist.
Status check_decode_addresses(const core::DeltaRuleProblem& problem) noexcept;
Status check_decode_addresses(const core::LayerProblem& problem) noexcept;

/// Static storage.
core::KernelName decode_name(const core::DeltaRuleProblem& problem) noexcept;
core::KernelName decode_name(const core::LayerProblem& problem) noexcept;

/// multiprocessors: of the GPU; only how the launch is cut up depends on it.
decode::DecodeParams lower_decode(const core::DeltaRuleProblem& problem,
                                  int multiprocessors) noexcept;
decode::DecodeParams lower_decode(const core::LayerProblem& problem, int multiprocessors) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SELECT_DECODE_H_
