// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/kernel.cuh"

const sluice::cuda::device::Instance& sluice::cuda::chunk_forward::fp16_k128_v64(
    bool l2norm) noexcept {
  static const Instance plain = make_instance<Config<__half, false, 128, 64>>();
  static const Instance normalising = make_instance<Config<__half, true, 128, 64>>();
  return l2norm ? normalising : plain;
}

const sluice::cuda::device::Instance& sluice::cuda::chunk_forward::fp16_k128_v64_transition(
    bool l2norm) noexcept {
  static const Instance plain = make_instance<Config<__half, false, 128, 64, false>>();
  static const Instance normalising = make_instance<Config<__half, true, 128, 64, false>>();
  return l2norm ? normalising : plain;
}
