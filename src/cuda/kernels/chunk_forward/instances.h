// Names the instantiations of the one-launch prefill kernel, one translation unit each (inst/).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_INSTANCES_H_

#include "cuda/device/instance.h"

namespace sluice::cuda::chunk_forward {

using device::Instance;  // kernels take one PrefillParams by value

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
/// With key-wise gates, by K: the preparation of all chunks; main and transition pass by columns of a
/// work item, of the gated delta rule or linear attention.
/// CTAs of the preparation that a multiprocessor has at once. WHY two: float16 takes more registers.
constexpr int key_preparations(bool is_bf16) { return is_bf16 ? 3 : 2; }
const Instance& bf16_key_preparation(int K, bool l2norm) noexcept;
const Instance& fp16_key_preparation(int K, bool l2norm) noexcept;
const Instance& bf16_key_k128(bool delta, int columns, bool output) noexcept;
const Instance& bf16_key_k64(bool delta, int columns, bool output) noexcept;
const Instance& fp16_key_k128(bool delta, int columns, bool output) noexcept;
const Instance& fp16_key_k64(bool delta, int columns, bool output) noexcept;
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
