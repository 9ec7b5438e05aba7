// Launches the generic kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_

#include "cuda/kernels/generic/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::generic {

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; K at most kMaxK. Nothing is allocated and nothing waits for the device.
void launch(const GenericParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_
