// Compiles the stages of one chunk in the case of models.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/compact_cumsum.cuh"
#include "cuda/kernels/stages/compact_kkt.cuh"
#include "cuda/kernels/stages/compact_wy.cuh"
#include "cuda/kernels/stages/instances.h"

namespace sluice::cuda::stages {

using device::address_of;

const void* compact_cumsum() noexcept { return address_of(compact_cumsum_kernel); }
const void* compact_kkt(bool is_bf16) noexcept {
  return address_of(is_bf16 ? compact_kkt_kernel<__nv_bfloat16> : compact_kkt_kernel<__half>);
}
const void* compact_wy(bool is_bf16) noexcept {
  return address_of(is_bf16 ? compact_wy_kernel<__nv_bfloat16> : compact_wy_kernel<__half>);
}

}  // namespace sluice::cuda::stages
