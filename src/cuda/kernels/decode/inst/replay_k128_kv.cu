// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/replay/instances.h"
#include "cuda/kernels/decode/replay/kernel.cuh"

const void* sluice::cuda::decode::replay_k128_kv(bool layer, bool packed) noexcept {
  return replay_instance<128, false>(layer, packed);
}
