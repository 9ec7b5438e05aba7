// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/ring.cuh"
#include "cuda/kernels/decode/ring_launch.h"

const void* sluice::cuda::decode::ring_k128_kv(bool layer, bool packed) noexcept {
  return ring_instance<128, false>(layer, packed);
}
