// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/replay/instances.h"
#include "cuda/kernels/decode/replay/kernel.cuh"

const void* sluice::cuda::decode::replay_k64_kv(bool layer, bool packed) noexcept {
  return replay_instance<64, false>(layer, packed);
}
