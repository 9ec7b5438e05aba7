// Compiles the one-launch prefill for float16, K = 64 and None columns of V a work item.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/key_instances.cuh"

namespace sluice::cuda::chunk_forward {

const Instance& fp16_key_k64(bool delta, int columns, bool output) noexcept {
  return key_instance<__half, 64>(delta, columns, output);
}

}  // namespace sluice::cuda::chunk_forward
