// Compiles the one-launch prefill for float16, K = 128 and None columns of V a work item.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/key_instances.cuh"

namespace sluice::cuda::chunk_forward {

const Instance& fp16_key_preparation(int K, bool l2norm) noexcept {
  return l2norm ? key_preparation<__half, true>(K) : key_preparation<__half, false>(K);
}

const Instance& fp16_key_k128(bool delta, int columns, bool output) noexcept {
  return key_instance<__half, 128>(delta, columns, output);
}

}  // namespace sluice::cuda::chunk_forward
