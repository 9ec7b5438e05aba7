// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/ring_model.cuh"

const void* sluice::cuda::decode::ring_model_bf16(const RingKind& kind) noexcept {
  return ring_model_instance<__nv_bfloat16>(kind);
}
