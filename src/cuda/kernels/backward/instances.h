// The kernels of chunk_backward, one translation unit (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_

namespace sluice::cuda::backward {

/// All take (BackwardParams, int64 items).
const void* prepare() noexcept;
const void* local() noexcept;
const void* chain() noexcept;
const void* gradients() noexcept;
const void* keys_of_heads() noexcept;
const void* head_sums() noexcept;

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
