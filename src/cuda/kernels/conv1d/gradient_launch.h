// Chooses and launches the kernels of the convolution's gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_LAUNCH_H_

#include "cuda/kernels/conv1d/gradient_params.h"
#include "cuda/launch.h"

namespace sluice::cuda::conv1d_backward {

/// How a thread moves numbers: a channel of any form, or packs of one 16-bit type.
enum class Form { kAny, kBfloat16, kFloat16 };

/// Of lowered parameters.
Form form_of(const ConvGradientParams& params) noexcept;

/// Fills in what follows from the form and from sizes.
void plan_launch(Form form, ConvGradientParams* params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues both kernels. Nothing is allocated and nothing waits for the device.
void launch(Form form, const ConvGradientParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d_backward

#endif  // SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_LAUNCH_H_
