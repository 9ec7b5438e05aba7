// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear_attention/instances.h"
#include "cuda/kernels/linear_attention/prefix.cuh"

namespace sluice::cuda::linear_attention {

const Instance& fp16_prefix(int K) noexcept {
  static const Instance large = make_prefix_instance<Config<__half, 128, 128>>();
  static const Instance small = make_prefix_instance<Config<__half, 64, 128>>();
  return K == 128 ? large : small;
}

}  // namespace sluice::cuda::linear_attention
