// Compiles the kernels of chunk_backward with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/instances.h"
#include "cuda/kernels/backward/key_tokens.cuh"

namespace sluice::cuda::backward {

const void* key_tokens() noexcept { return device::address_of(key_tokens_kernel); }
const void* key_sums() noexcept { return device::address_of(key_sums_kernel); }

}  // namespace sluice::cuda::backward
