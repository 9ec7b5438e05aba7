// Names the instantiations of the generic kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_GENERIC_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::generic {

/// The kernel for K up to the number in its name, with key-wise gates or others: takes
/// (GenericParams, int64 items, int64 slices).
const void* kernel_k32(bool key_wise) noexcept;
const void* kernel_k64(bool key_wise) noexcept;
const void* kernel_k128(bool key_wise) noexcept;
const void* kernel_k256(bool key_wise) noexcept;
const void* kernel_k512(bool key_wise) noexcept;

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_INSTANCES_H_
