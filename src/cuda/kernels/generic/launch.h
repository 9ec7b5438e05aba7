// Launches the generic kernel, and names its instances, which inst/ compiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_

#include "cuda/device/instance.h"
#include "cuda/kernels/generic/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::generic {

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; K at most kMaxK. Nothing is allocated and nothing waits for the device.
void launch(const GenericParams& params, Launcher& launcher) noexcept;

/// The kernel for K up to the number in its name, with key-wise gates or others: takes
/// (GenericParams, int64 items, int64 slices).
const void* kernel_k32(bool key_wise) noexcept;
const void* kernel_k64(bool key_wise) noexcept;
const void* kernel_k128(bool key_wise) noexcept;
const void* kernel_k256(bool key_wise) noexcept;
const void* kernel_k512(bool key_wise) noexcept;

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_LAUNCH_H_
