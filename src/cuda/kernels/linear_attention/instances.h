// Names the instantiations of the linear attention kernel (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::linear_attention {

using device::Instance;

/// By dtype and K; `columns` of V of a work item: 128 or 64.
const Instance& bf16_k128(int columns) noexcept;
const Instance& bf16_k64(int columns) noexcept;
const Instance& fp16_k128(int columns) noexcept;
const Instance& fp16_k64(int columns) noexcept;
/// The transition pass.
const Instance& bf16_k128_transition(int columns) noexcept;
const Instance& bf16_k64_transition(int columns) noexcept;
const Instance& fp16_k128_transition(int columns) noexcept;
const Instance& fp16_k64_transition(int columns) noexcept;
const Instance& join() noexcept;
/// Segments of a sequence as the CTAs of a cluster, by dtype; 128 columns of V.
const Instance& bf16_cluster(int K) noexcept;
const Instance& fp16_cluster(int K) noexcept;
/// Segments that sum up all before them.
const Instance& bf16_prefix(int K) noexcept;
const Instance& fp16_prefix(int K) noexcept;

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_
