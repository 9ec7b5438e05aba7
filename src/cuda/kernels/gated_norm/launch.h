// Chooses and launches the kernels of the gated norm and of its gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_

#include "cuda/kernels/gated_norm/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::gated_norm {

/// A kernel, by the form that it is for.
enum class Form {
  kAny,         ///< any type, stride and V
  kTokenRows,   ///< one 16-bit type and packs, tokens evenly spaced
  kFourTokens,  ///< likewise, four tokens at a time, where there are many rows
  kOneAxis,     ///< rows as one axis, in the form of models
};

/// A launch: lowered parameters, and what plan_launch() makes of them.
struct PlannedNorm {
  Form form;
  unsigned ctas;  ///< nothing is launched where there are none
  NormParams params;
};

/// Fills in all but the lowered parameters. Bits do not depend on `multiprocessors`.
void plan_launch(int multiprocessors, PlannedNorm* norm) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues a planned norm. Nothing is allocated and nothing waits for the device.
void launch(const PlannedNorm& norm, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::gated_norm

namespace sluice::cuda::gated_norm_backward {

/// How rows are moved: number by number, or packs of one 16-bit type.
enum class Form { kAny, kBfloat16, kFloat16 };

/// Of lowered parameters.
Form form_of(const NormGradientParams& params) noexcept;

/// Fills in what follows from the form and from sizes.
void plan_launch(Form form, NormGradientParams* params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues both kernels. Nothing is allocated and nothing waits for the device.
void launch(Form form, const NormGradientParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::gated_norm_backward

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
