// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"

const void* sluice::cuda::decode::k128_kv(bool layer, bool packed) noexcept {
  return instance_of<128, false>(layer, packed);
}
