// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/single/stream.cuh"

sluice::cuda::decode::SingleInstance sluice::cuda::decode::single_stream_fp16(
    Number state) noexcept {
  return stream_instance<__half>(state);
}
