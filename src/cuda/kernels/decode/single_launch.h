// Host side of the kernel of single tokens.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAUNCH_H_

#include "cuda/kernels/decode/single_params.h"

namespace sluice::cuda::decode {

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_single_kernels() noexcept;

/// Enqueues the kernel for `sequences` sequences, as launch() does.
int launch_single(const SingleParams& params, const SingleKind& kind, int64_t sequences,
                  void* stream) noexcept;
int launch_single(const SingleLayerParams& params, const SingleKind& kind, int64_t sequences,
                  void* stream) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAUNCH_H_
