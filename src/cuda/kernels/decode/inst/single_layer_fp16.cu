// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/single/layer.cuh"

sluice::cuda::decode::SingleInstance sluice::cuda::decode::single_layer_fp16(
    Number state) noexcept {
  return single_layer_instance<__half>(state);
}
