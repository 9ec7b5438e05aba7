// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/generic/instances.h"
#include "cuda/kernels/generic/kernel.cuh"

const void* sluice::cuda::generic::kernel_k512() noexcept {
  return reinterpret_cast<const void*>(generic_kernel<Config<512>>);
}
