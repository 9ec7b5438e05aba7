// Names the instantiations of the linear attention kernel (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::linear_attention {

using device::Instance;

/// Main and transition pass by dtype, K and columns of V of a work item: 64, then 128.
struct PassInstances {
  Instance main[2], transition[2];
};
const PassInstances& bf16_k128() noexcept;
const PassInstances& bf16_k64() noexcept;
const PassInstances& fp16_k128() noexcept;
const PassInstances& fp16_k64() noexcept;
const Instance& join() noexcept;
/// By K, 64 first; 128 columns of V.
using InstancesByK = Instance[2];
/// Segments of a sequence as the CTAs of a cluster, and such as sum up all before them; by dtype.
const InstancesByK& bf16_cluster() noexcept;
const InstancesByK& fp16_cluster() noexcept;
const InstancesByK& bf16_prefix() noexcept;
const InstancesByK& fp16_prefix() noexcept;

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_INSTANCES_H_
