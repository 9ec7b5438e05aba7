// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/single/kernel.cuh"

sluice::cuda::decode::SingleInstance sluice::cuda::decode::single_bf16(
    const SingleKind& kind) noexcept {
  return single_instance<__nv_bfloat16, false>(kind);
}
