// The instantiations of the fused prefill kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_

#include <cstddef>

namespace sluice::cuda::chunk_forward {

/// A compiled kernel and how to launch it.
struct Instance {
  const void* kernel;  ///< takes one ChunkForwardParams by value
  size_t shared_bytes;
  unsigned threads;
};

const Instance& bf16_d128() noexcept;
const Instance& bf16_d128_l2norm() noexcept;
const Instance& fp16_d128() noexcept;
const Instance& fp16_d128_l2norm() noexcept;

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
