// Host side of the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_

#include "cuda/kernels/conv1d/params.h"

namespace sluice::cuda::conv1d {

/// Which kernel: how its bodies move elements.
enum class Body {
  kRowsOfFloats,    ///< channels are neighbours: packs of four floats ..
  kRowsOfShorts,    ///< .. or of four 16-bit numbers,
  kRowsOfElements,  ///< or one element of any type and stride
  kLinesOfShorts,   ///< tokens are neighbours: packs of four 16-bit numbers,
  kLinesOfElements  ///< or one element of any type
};

/// The fastest body for these strides, types and addresses. Bits do not depend on it.
Body choose_body(const ConvParams& params) noexcept;

/// Fills in the members of the launch. Bits do not depend on `multiprocessors`.
void plan_launch(Body body, int multiprocessors, ConvParams* params) noexcept;

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel. Nothing is allocated and nothing waits for the device.
/// @param params all but the members of the launch filled in
/// @param stream a cudaStream_t of the current device
/// @return a cudaError_t; 0 is success
int launch(ConvParams params, void* stream) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
