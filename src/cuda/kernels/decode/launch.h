// Host side of the decode kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_DECODE_LAUNCH_H_

#include "cuda/kernels/decode/params.h"

namespace sluice::cuda::decode {

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel for `sequences` sequences. Nothing is allocated and nothing waits for the
/// device. Programmatic dependent launch is allowed on both sides: the kernel waits for those
/// before it ahead of its first access to memory.
/// @param params with their grid
/// @param is_vk layout of the states
/// @param stream a cudaStream_t of the current device
/// @return a cudaError_t; 0 is success
int launch(const DecodeParams& params, int64_t sequences, bool is_vk, bool layer,
           void* stream) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_LAUNCH_H_
