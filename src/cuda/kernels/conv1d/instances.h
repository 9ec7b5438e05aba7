// The instantiations of the convolution kernel; all take (ConvParams).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_

namespace sluice::cuda::conv1d {

/// Channels are neighbours: packs of four floats or 16-bit numbers, or single elements of any type.
const void* rows_of_floats() noexcept;
const void* rows_of_shorts() noexcept;
const void* rows_of_elements() noexcept;
/// Tokens are neighbours.
const void* lines_of_shorts() noexcept;
const void* lines_of_elements() noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_H_
