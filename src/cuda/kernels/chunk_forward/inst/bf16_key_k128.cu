// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/key_instances.cuh"

namespace sluice::cuda::chunk_forward {

const Instance& bf16_key_preparation(int K) noexcept {
  static const Instance large = make_key_preparation<KeyPrepareConfig<__nv_bfloat16, 128>>();
  static const Instance small = make_key_preparation<KeyPrepareConfig<__nv_bfloat16, 64>>();
  return K == 128 ? large : small;
}

const Instance& bf16_key_k128(bool delta, int columns, bool output) noexcept {
  return key_instance<__nv_bfloat16, 128>(delta, columns, output);
}

}  // namespace sluice::cuda::chunk_forward
