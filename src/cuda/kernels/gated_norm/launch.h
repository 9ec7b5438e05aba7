// Host side of the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_

#include "cuda/kernels/gated_norm/params.h"

namespace sluice::cuda::gated_norm {

/// Whether rows can be moved by packs: sizes, strides and addresses allow it.
bool by_packs(const NormParams& params) noexcept;

/// Fills in the members of the launch; at most kMaxRows rows.
void plan_launch(NormParams* params) noexcept;

/// Loads both kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; more than kMaxRows rows in several launches. Nothing is allocated and
/// nothing waits for the device.
/// @param params all but the members of the launch filled in
/// @param stream a cudaStream_t of the current device
/// @return a cudaError_t; 0 is success
int launch(const NormParams& params, void* stream) noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
