// Compiles the stages for any dtype and stride.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/cumsum.cuh"
#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/join.cuh"
#include "cuda/kernels/stages/plain_chain.cuh"

namespace sluice::cuda::stages {

using device::address_of;

const void* plain_instance(Kernel kernel, const Variant& variant) noexcept {
  switch (kernel) {
    case Kernel::kCumsum:
      return address_of(cumsum_kernel);
    case Kernel::kPlainKkt:
      return address_of(plain_kkt_kernel);
    case Kernel::kPlainWy:
      return address_of(plain_wy_kernel);
    case Kernel::kPlainChain:
      return address_of(variant.key_wise ? plain_chain_kernel<true> : plain_chain_kernel<false>);
    case Kernel::kPlainOutputs:
      return address_of(variant.key_wise ? plain_outputs_kernel<true>
                                         : plain_outputs_kernel<false>);
    default:
      return address_of(join_kernel);
  }
}

}  // namespace sluice::cuda::stages
