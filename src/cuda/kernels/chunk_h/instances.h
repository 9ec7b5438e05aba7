// Names the instantiations of Hopper's kernel of chunk_h (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CHUNK_H_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::chunk_h {

using device::Instance;

/// By dtype; `wide`: K = 128, else 64; `columns` of V of a work item: 128 or 64.
const Instance& bf16(bool wide, int columns) noexcept;
const Instance& fp16(bool wide, int columns) noexcept;

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_INSTANCES_H_
