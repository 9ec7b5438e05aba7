// Compiles the plain kernels of chunk_backward.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/chain.cuh"
#include "cuda/kernels/backward/gradients.cuh"
#include "cuda/kernels/backward/instances.h"

namespace sluice::cuda::backward {

using device::address_of;

const void* plain_instance(Kernel kernel, bool narrow) noexcept {
  switch (kernel) {
    case Kernel::kPrepare:
      return address_of(narrow ? prepare_kernel<kNarrowK> : prepare_kernel<kMaxK>);
    case Kernel::kLocal:
      return address_of(local_kernel);
    case Kernel::kChain:
      return address_of(chain_kernel);
    case Kernel::kGradients:
      return address_of(gradients_kernel);
    case Kernel::kKeys:
      return address_of(narrow ? keys_kernel<kNarrowK> : keys_kernel<kMaxK>);
    case Kernel::kHeadSums:
      return address_of(head_sums_kernel);
    default:
      return address_of(chunk_sums_kernel);
  }
}

}  // namespace sluice::cuda::backward
