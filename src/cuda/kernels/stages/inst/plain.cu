// Compiles the stages for any dtype and stride.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/cumsum.cuh"
#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/join.cuh"
#include "cuda/kernels/stages/plain_chain.cuh"

namespace sluice::cuda::stages {

const void* cumsum() noexcept { return reinterpret_cast<const void*>(cumsum_kernel); }
const void* plain_kkt() noexcept { return reinterpret_cast<const void*>(plain_kkt_kernel); }
const void* plain_wy() noexcept { return reinterpret_cast<const void*>(plain_wy_kernel); }
const void* plain_chain() noexcept { return reinterpret_cast<const void*>(plain_chain_kernel); }
const void* join() noexcept { return reinterpret_cast<const void*>(join_kernel); }
const void* plain_outputs() noexcept { return reinterpret_cast<const void*>(plain_outputs_kernel); }

}  // namespace sluice::cuda::stages
