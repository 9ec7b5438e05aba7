// Compiles the passes that cut sequences need besides transition and main pass.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/horizon.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/join.cuh"
#include "cuda/kernels/chunk_forward/planner.cuh"
#include "cuda/kernels/chunk_forward/prepare_tokens.cuh"
#include "cuda/kernels/chunk_forward/summary.cuh"

namespace sluice::cuda::chunk_forward {

using device::address_of;

const Instance& planner() noexcept {
  static const Instance instance{address_of(planner_kernel), sizeof(PlannerMemory),
                                 kPlannerThreads};
  return instance;
}

const Instance& token_preparation(bool is_bf16, int K) noexcept {
  static const Instance instances[2][2] = {
      {{address_of(prepare_tokens_kernel<__half, 64>), 0, kPreparedThreads},
       {address_of(prepare_tokens_kernel<__half, 128>), 0, kPreparedThreads}},
      {{address_of(prepare_tokens_kernel<__nv_bfloat16, 64>), 0, kPreparedThreads},
       {address_of(prepare_tokens_kernel<__nv_bfloat16, 128>), 0, kPreparedThreads}}};
  return instances[is_bf16][K / 128];
}

const Instance& horizon() noexcept {
  static const Instance instance{address_of(horizon_kernel), 0, kHorizonThreads};
  return instance;
}

const Instance& key_horizon() noexcept {
  static const Instance instance{address_of(key_horizon_kernel), 0, kHorizonThreads};
  return instance;
}

namespace {

template <int kK, int kColumns>
Instance join_of() noexcept {
  static_assert(sizeof(JoinMemory<kK, kColumns>) <= tile::kSharedBytesSm90);
  return {address_of(join_kernel<kK, kColumns>), sizeof(JoinMemory<kK, kColumns>),
          kJoinThreads<kK>};
}

}  // namespace

const Instance& join(int K, int columns) noexcept {
  static const Instance instances[2][3] = {
      {join_of<64, 8>(), join_of<64, 16>(), join_of<64, 32>()},
      {join_of<128, 8>(), join_of<128, 16>(), join_of<128, 32>()}};
  return instances[K / 128][columns / 16];
}

const Instance& summary_planner(bool key_gates) noexcept {
  static const Instance instances[] = {
      {address_of(summary_planner_kernel), 0, kHorizonThreads},
      {address_of(key_summary_planner_kernel), 0, kHorizonThreads}};
  return instances[key_gates];
}

const Instance& summary_join(int K) noexcept {
  static const Instance instances[] = {
      {address_of(summary_join_kernel<64>), sizeof(SummaryJoinMemory<64>), device::kAffineThreads},
      {address_of(summary_join_kernel<128>), sizeof(SummaryJoinMemory<128>),
       device::kAffineThreads}};
  return instances[K / 128];
}

}  // namespace sluice::cuda::chunk_forward
