// Host side of the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_

#include "cuda/kernels/gated_norm/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::gated_norm {

enum class Kernel {
  kFourBfloats,  ///< evenly spaced rows of one 16-bit type, four tokens together ..
  kFourHalves,
  kOneBfloats,  ///< .. or one by one
  kOneHalves,
  kEvenBfloats128,  ///< rows as one axis, in the form of models, V as named
  kEvenBfloats256,
  kEvenHalves128,
  kEvenHalves256,
  kPacks,    ///< rows of up to 256 numbers, aligned, of any types
  kElements  ///< any
};

/// Which kernel runs, and fills in the members of its launch; at most kMaxRows rows.
Kernel plan_launch(int multiprocessors, NormParams* params) noexcept;

/// CTAs of a planned launch. BOUND: row numbers plus a grid's worth of rows stay within 32 bits.
uint32_t ctas_of(Kernel kernel, const NormParams& params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; more than kMaxRows rows in several launches. Nothing is allocated and
/// nothing waits for the device.
/// @param params all but the members of the launch filled in
void launch(const NormParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
