// Names the kernels of chunk_backward for the host; inst/ compiles them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_

namespace sluice::cuda::backward {

/// All take (BackwardParams, int64 items). narrow: K up to kNarrowK.
const void* prepare(bool narrow) noexcept;
const void* local() noexcept;
const void* chain() noexcept;
const void* gradients() noexcept;
const void* keys_of_heads(bool narrow) noexcept;
const void* head_sums() noexcept;

/// With key-wise gates; they take (KeyBackwardParams, int64 items).
const void* key_tokens() noexcept;
const void* key_sums() noexcept;

// By tensor cores; `narrow`: a CTA has 32 columns of V, else 64.
const void* bf16_local() noexcept;
const void* bf16_chain(bool narrow) noexcept;
const void* bf16_gradients() noexcept;
const void* fp16_local() noexcept;
const void* fp16_chain(bool narrow) noexcept;
const void* fp16_gradients() noexcept;

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
