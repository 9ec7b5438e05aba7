// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/kernel.cuh"

const sluice::cuda::device::Instance& sluice::cuda::chunk_forward::bf16_k128_v128(
    bool l2norm) noexcept {
  static const Instance plain = make_instance<Config<__nv_bfloat16, false, 128, 128>>();
  static const Instance normalising = make_instance<Config<__nv_bfloat16, true, 128, 128>>();
  return l2norm ? normalising : plain;
}

const sluice::cuda::device::Instance& sluice::cuda::chunk_forward::bf16_k128_v128_transition(
    bool l2norm) noexcept {
  static const Instance plain = make_instance<Config<__nv_bfloat16, false, 128, 128, false>>();
  static const Instance normalising = make_instance<Config<__nv_bfloat16, true, 128, 128, false>>();
  return l2norm ? normalising : plain;
}
