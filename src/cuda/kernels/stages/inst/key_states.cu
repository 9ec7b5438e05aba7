// Compiles chunk_h with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/scale_keys.cuh"
#include "cuda/kernels/stages/states.cuh"

namespace sluice::cuda::stages {

const void* scale_keys() noexcept { return reinterpret_cast<const void*>(scale_keys_kernel); }
const void* bf16_key_states(bool wide) noexcept {
  return wide ? reinterpret_cast<const void*>(states_kernel<__nv_bfloat16, 2, 2, true>)
              : reinterpret_cast<const void*>(states_kernel<__nv_bfloat16, 1, 2, true>);
}
const void* fp16_key_states(bool wide) noexcept {
  return wide ? reinterpret_cast<const void*>(states_kernel<__half, 2, 2, true>)
              : reinterpret_cast<const void*>(states_kernel<__half, 1, 2, true>);
}

}  // namespace sluice::cuda::stages
