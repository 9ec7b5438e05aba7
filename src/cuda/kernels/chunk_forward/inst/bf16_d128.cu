// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/kernel.cuh"

const sluice::cuda::chunk_forward::Instance& sluice::cuda::chunk_forward::bf16_d128() noexcept {
  using C = Config<__nv_bfloat16>;
  static const Instance found = make_instance<C, SharedMemoryPlan<C>>(
      reinterpret_cast<const void*>(&chunk_forward_kernel<C>));
  return found;
}
