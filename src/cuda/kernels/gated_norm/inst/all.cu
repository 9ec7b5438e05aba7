// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/even.cuh"
#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/kernel.cuh"
#include "cuda/kernels/gated_norm/walk.cuh"

namespace sluice::cuda::gated_norm {

const void* four_bfloats() noexcept {
  return reinterpret_cast<const void*>(walk_kernel<Number::kBfloat16, 4>);
}
const void* four_halves() noexcept {
  return reinterpret_cast<const void*>(walk_kernel<Number::kFloat16, 4>);
}
const void* one_bfloats() noexcept {
  return reinterpret_cast<const void*>(walk_kernel<Number::kBfloat16, 1>);
}
const void* one_halves() noexcept {
  return reinterpret_cast<const void*>(walk_kernel<Number::kFloat16, 1>);
}
const void* even_bfloats_of_128() noexcept {
  return reinterpret_cast<const void*>(even_kernel<Number::kBfloat16, 16>);
}
const void* even_bfloats_of_256() noexcept {
  return reinterpret_cast<const void*>(even_kernel<Number::kBfloat16, 32>);
}
const void* even_halves_of_128() noexcept {
  return reinterpret_cast<const void*>(even_kernel<Number::kFloat16, 16>);
}
const void* even_halves_of_256() noexcept {
  return reinterpret_cast<const void*>(even_kernel<Number::kFloat16, 32>);
}
const void* rows_by_packs() noexcept { return reinterpret_cast<const void*>(packed_kernel); }
const void* rows_by_elements() noexcept { return reinterpret_cast<const void*>(element_kernel); }

}  // namespace sluice::cuda::gated_norm
