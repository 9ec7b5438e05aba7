// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/ring.cuh"
#include "cuda/kernels/decode/ring_launch.h"

const void* sluice::cuda::decode::ring_k64_kv() noexcept {
  return reinterpret_cast<const void*>(&ring_kernel<Config<64, false, false>>);
}
