// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/key_instances.cuh"

namespace sluice::cuda::chunk_forward {

const Instance& fp16_key_preparation(int K) noexcept {
  static const Instance large = make_key_preparation<KeyPrepareConfig<__half, 128>>();
  static const Instance small = make_key_preparation<KeyPrepareConfig<__half, 64>>();
  return K == 128 ? large : small;
}

const Instance& fp16_key_k128(bool delta, int columns, bool output) noexcept {
  return key_instance<__half, 128>(delta, columns, output);
}

}  // namespace sluice::cuda::chunk_forward
