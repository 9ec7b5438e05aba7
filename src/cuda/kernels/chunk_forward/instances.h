// Names the instantiations of the one-launch prefill kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::chunk_forward {

using device::Instance, device::InstancesBySize;  // kernels take one PrefillParams by value

/// Main and transition pass of items as wide, without l2 norms and with them. A transition pass has
/// columns of K too, so that it is no wider than K: none where it would be.
struct PassInstances {
  Instance main[2], transition[2];
};
/// By dtype, K, and columns of V of a work item:
const PassInstances& bf16_k128_v128() noexcept;
const PassInstances& bf16_k128_v64() noexcept;
const PassInstances& bf16_k64_v128() noexcept;
const PassInstances& bf16_k64_v64() noexcept;
const PassInstances& fp16_k128_v128() noexcept;
const PassInstances& fp16_k128_v64() noexcept;
const PassInstances& fp16_k64_v128() noexcept;
const PassInstances& fp16_k64_v64() noexcept;

/// With key-wise gates the preparation of all chunks, by K and whether there are l2 norms.
/// CTAs of the preparation that a multiprocessor has at once. WHY two: float16 takes more registers.
constexpr int key_preparations(bool is_bf16) { return is_bf16 ? 3 : 2; }
const InstancesBySize& bf16_key_preparation() noexcept;
const InstancesBySize& fp16_key_preparation() noexcept;
/// The passes, of linear attention and of the gated delta rule, by columns of a work item: 64, then
/// 128.
struct KeyInstances {
  Instance main[2][2], transition[2][2];
};
const KeyInstances& bf16_key_k128() noexcept;
const KeyInstances& bf16_key_k64() noexcept;
const KeyInstances& fp16_key_k128() noexcept;
const KeyInstances& fp16_key_k64() noexcept;
/// Ahead of all passes but the planner, where q and k go through the norm; takes KeyRows too.
const Instance& token_preparation(bool is_bf16, int K) noexcept;
/// Before the transition pass: the planner, and the look back for heads that forget.
const Instance& planner() noexcept;
const Instance& horizon() noexcept;
const Instance& key_horizon() noexcept;
/// Of chunk_summary, before and after the transition pass; they take SummaryParams too.
const Instance& summary_planner(bool key_gates) noexcept;
const Instance& summary_join(int K) noexcept;
/// Between transition and main pass; columns of V that one CTA carries: one of kJoinColumns. Their
/// number changes no bit.
const Instance& join(int K, int columns) noexcept;
inline constexpr int kJoinColumns[] = {8, 16, 32};

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
