// Names the instantiations of the convolution kernels; all take (ConvParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

const void* any_form() noexcept;
/// Of bfloat16 or float16.
const void* channel_first(Number number) noexcept;
const void* channel_last(Number number, bool groups_apart) noexcept;
const void* update(Number number, const UpdateForm& form) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
