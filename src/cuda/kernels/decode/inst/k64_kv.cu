// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"

const void* sluice::cuda::decode::k64_kv(bool layer) noexcept {
  return layer ? instance<Config<64, false, true>>() : instance<Config<64, false, false>>();
}
