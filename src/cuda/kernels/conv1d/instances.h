// The instantiations of the convolution kernel; all take (ConvParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

/// Channels are neighbours: packs of one type, or single elements of any type.
const void* rows_of_floats() noexcept;
const void* rows_of_bfloats() noexcept;
const void* rows_of_halves() noexcept;
const void* rows_of_elements() noexcept;
/// Tokens are neighbours.
const void* lines_of_bfloats() noexcept;
const void* lines_of_halves() noexcept;
const void* lines_of_elements() noexcept;
/// No token but those of heads by packs.
const void* heads_of_floats() noexcept;
const void* heads_of_bfloats() noexcept;
const void* heads_of_halves() noexcept;
/// Of a 16-bit type, in the forms of models.
const void* updates(Number number, const UpdateForm& form) noexcept;
const void* patches(Number number, bool cut) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
