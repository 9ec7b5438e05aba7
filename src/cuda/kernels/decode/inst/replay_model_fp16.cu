// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/decode/replay/model.cuh"

const void* sluice::cuda::decode::replay_model_fp16(const ReplayModel& kind) noexcept {
  return replay_model_instance<__half>(kind);
}
