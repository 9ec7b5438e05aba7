// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/kernel.cuh"

const sluice::cuda::chunk_forward::Instance& sluice::cuda::chunk_forward::fp16_d128() noexcept {
  static const Instance found = make_instance<Config<__half, false>>();
  return found;
}
