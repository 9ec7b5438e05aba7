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
const void* plain_chain(bool key_wise) noexcept {
  return key_wise ? reinterpret_cast<const void*>(plain_chain_kernel<true>)
                  : reinterpret_cast<const void*>(plain_chain_kernel<false>);
}
const void* join() noexcept { return reinterpret_cast<const void*>(join_kernel); }
const void* plain_outputs(bool key_wise) noexcept {
  return key_wise ? reinterpret_cast<const void*>(plain_outputs_kernel<true>)
                  : reinterpret_cast<const void*>(plain_outputs_kernel<false>);
}

}  // namespace sluice::cuda::stages
