// Lowers convolutions to what their kernels take, and launches those of a layer: no checks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CAUSAL_CONV1D_LOWER_H_
#define SLUICE_CUDA_CAUSAL_CONV1D_LOWER_H_

#include "core/problem.hpp"
#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda {

/// `parts` problems (1 to 3) over slices of the same channels, in their order, as one launch:
/// weights, bias and states are those of the first, whose slices the others continue.
void lower_conv(const core::CausalConvProblem* problems, int parts,
                conv1d::ConvParams* out) noexcept;
/// Plans and launches the three convolutions of a layer, `at_once` of them (1 or 3) as one.
/// @param row_kinds what rows are, for the norm; may be null
void launch_convs(const core::CausalConvProblem* problems, int at_once, device::RowKind* row_kinds,
                  Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CAUSAL_CONV1D_LOWER_H_
