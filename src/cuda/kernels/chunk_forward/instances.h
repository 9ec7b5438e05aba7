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

/// By dtype, K, and columns of V of a work item.
const Instance& bf16_k128_v128(bool l2norm) noexcept;
const Instance& bf16_k128_v64(bool l2norm) noexcept;
const Instance& bf16_k64_v128(bool l2norm) noexcept;
const Instance& bf16_k64_v64(bool l2norm) noexcept;
const Instance& fp16_k128_v128(bool l2norm) noexcept;
const Instance& fp16_k128_v64(bool l2norm) noexcept;
const Instance& fp16_k64_v128(bool l2norm) noexcept;
const Instance& fp16_k64_v64(bool l2norm) noexcept;

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
