// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear_attention/instances.h"
#include "cuda/kernels/linear_attention/kernel.cuh"

namespace sluice::cuda::linear_attention {

const Instance& bf16_k128(int columns) noexcept {
  static const Instance wide = make_instance<Config<__nv_bfloat16, 128, 128>>();
  static const Instance narrow = make_instance<Config<__nv_bfloat16, 128, 64>>();
  return columns == 128 ? wide : narrow;
}

const Instance& bf16_k128_transition(int columns) noexcept {
  static const Instance wide = make_instance<Config<__nv_bfloat16, 128, 128, false>>();
  static const Instance narrow = make_instance<Config<__nv_bfloat16, 128, 64, false>>();
  return columns == 128 ? wide : narrow;
}

}  // namespace sluice::cuda::linear_attention
