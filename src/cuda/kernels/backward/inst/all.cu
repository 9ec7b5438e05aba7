// Compiles the plain kernels of chunk_backward.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/chain.cuh"
#include "cuda/kernels/backward/gradients.cuh"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {

const void* prepare(bool narrow) noexcept {
  return narrow ? reinterpret_cast<const void*>(prepare_kernel<kNarrowK>)
                : reinterpret_cast<const void*>(prepare_kernel<kMaxK>);
}
const void* local() noexcept { return reinterpret_cast<const void*>(local_kernel); }
const void* chain() noexcept { return reinterpret_cast<const void*>(chain_kernel); }
const void* gradients() noexcept { return reinterpret_cast<const void*>(gradients_kernel); }
const void* keys_of_heads(bool narrow) noexcept {
  return narrow ? reinterpret_cast<const void*>(keys_kernel<kNarrowK>)
                : reinterpret_cast<const void*>(keys_kernel<kMaxK>);
}
const void* head_sums() noexcept { return reinterpret_cast<const void*>(head_sums_kernel); }
const void* chunk_sums() noexcept { return reinterpret_cast<const void*>(chunk_sums_kernel); }

}  // namespace sluice::cuda::backward
