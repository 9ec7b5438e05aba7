// Chooses and launches the gated norm kernels.
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

/// Which kernel runs, and fills in the members of its launch; at most kMaxRows rows. Bits do not
/// depend on `multiprocessors`.
Form plan_launch(int multiprocessors, NormParams* params) noexcept;

/// CTAs of a planned launch. BOUND: row numbers plus a grid's worth of rows stay within 32 bits.
uint32_t ctas_of(Form form, const NormParams& params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; more than kMaxRows rows in several launches. Nothing is allocated and
/// nothing waits for the device.
/// @param params all but the members of the launch filled in
void launch(const NormParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
