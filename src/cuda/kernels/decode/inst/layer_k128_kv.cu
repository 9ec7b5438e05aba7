// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"

const void* sluice::cuda::decode::fixed_layer() noexcept {
  return instance<Config<128, false, true, false, true>>();
}
