// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"

const void* sluice::cuda::decode::k256_vk(bool layer, bool packed) noexcept {
  return instance_of<256, true>(layer, packed);
}
