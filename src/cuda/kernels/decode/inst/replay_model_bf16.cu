// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/replay/instances.h"
#include "cuda/kernels/decode/replay/kernel.cuh"

const void* sluice::cuda::decode::replay_model_bf16(const ReplayModel& model) noexcept {
  return replay_model_instance<__nv_bfloat16>(model);
}
