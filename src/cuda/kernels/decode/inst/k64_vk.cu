// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"

const void* sluice::cuda::decode::k64_vk(AnyForm form) noexcept {
  return instance_of<64, true>(form);
}
