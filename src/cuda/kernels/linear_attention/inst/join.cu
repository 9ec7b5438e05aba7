// Compiles the join of linear attention.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/linear_attention/instances.h"
#include "cuda/kernels/linear_attention/join.cuh"

const sluice::cuda::linear_attention::Instance& sluice::cuda::linear_attention::join() noexcept {
  static const Instance instance{device::address_of(join_kernel), 0, kJoinThreads};
  return instance;
}
