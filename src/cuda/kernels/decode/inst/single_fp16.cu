// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/single/kernel.cuh"

sluice::cuda::decode::SingleInstance sluice::cuda::decode::single_fp16(
    const SingleKind& kind) noexcept {
  return single_instance<__half, false>(kind);
}
