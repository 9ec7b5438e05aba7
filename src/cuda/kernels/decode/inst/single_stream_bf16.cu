// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/single/stream.cuh"

sluice::cuda::decode::SingleInstance sluice::cuda::decode::single_stream_bf16(
    Number state) noexcept {
  return stream_instance<__nv_bfloat16>(state);
}
