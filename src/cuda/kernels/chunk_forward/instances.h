// The instantiations of the fused prefill kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::cuda::chunk_forward {

/// A compiled kernel and how to launch it.
struct Instance {
  const void* kernel;  ///< takes one ChunkForwardParams by value
  size_t shared_bytes;
  unsigned threads;
  /// One bit a GPU (below 64): whether it has granted the kernel its shared memory.
  mutable std::atomic<uint64_t> granted{0};
};

/// By dtype, K, and columns of V of a work item. Main pass:
const Instance& bf16_k128_v128(bool l2norm) noexcept;
const Instance& bf16_k128_v64(bool l2norm) noexcept;
const Instance& bf16_k64_v128(bool l2norm) noexcept;
const Instance& bf16_k64_v64(bool l2norm) noexcept;
const Instance& fp16_k128_v128(bool l2norm) noexcept;
const Instance& fp16_k128_v64(bool l2norm) noexcept;
const Instance& fp16_k64_v128(bool l2norm) noexcept;
const Instance& fp16_k64_v64(bool l2norm) noexcept;
/// Transition pass; its work items have columns of K too, so that they are no wider than K:
const Instance& bf16_k128_v128_transition(bool l2norm) noexcept;
const Instance& bf16_k128_v64_transition(bool l2norm) noexcept;
const Instance& bf16_k64_v64_transition(bool l2norm) noexcept;
const Instance& fp16_k128_v128_transition(bool l2norm) noexcept;
const Instance& fp16_k128_v64_transition(bool l2norm) noexcept;
const Instance& fp16_k64_v64_transition(bool l2norm) noexcept;

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
