// Compiles chunk_h with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/scale_keys.cuh"
#include "cuda/kernels/stages/states.cuh"

namespace sluice::cuda::stages {
namespace {

template <class Io>
const void* states(bool wide) noexcept {
  return device::address_of(wide ? states_kernel<Io, 2, 2, true> : states_kernel<Io, 1, 2, true>);
}

}  // namespace

const void* key_state_instance(Kernel kernel, const Variant& variant) noexcept {
  if (kernel == Kernel::kScaleKeys) return device::address_of(scale_keys_kernel);
  return variant.is_bf16 ? states<__nv_bfloat16>(variant.wide) : states<__half>(variant.wide);
}

}  // namespace sluice::cuda::stages
