// Compiles the passes that cut sequences need besides transition and main pass.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_forward/horizon.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/join.cuh"
#include "cuda/kernels/chunk_forward/planner.cuh"
#include "cuda/kernels/chunk_forward/prepare_tokens.cuh"
#include "cuda/kernels/chunk_forward/summary.cuh"

namespace sluice::cuda::chunk_forward {

const Instance& planner() noexcept {
  static const Instance instance{reinterpret_cast<const void*>(&planner_kernel),
                                 sizeof(PlannerMemory), kPlannerThreads};
  return instance;
}

namespace {

template <class Io, int kK>
const Instance& token_preparation() noexcept {
  static const Instance instance{reinterpret_cast<const void*>(&prepare_tokens_kernel<Io, kK>), 0,
                                 kPreparedThreads};
  return instance;
}

}  // namespace

const Instance& token_preparation(bool is_bf16, int K) noexcept {
  if (is_bf16) {
    return K == 128 ? token_preparation<__nv_bfloat16, 128>()
                    : token_preparation<__nv_bfloat16, 64>();
  }
  return K == 128 ? token_preparation<__half, 128>() : token_preparation<__half, 64>();
}

const Instance& horizon() noexcept {
  static const Instance instance{reinterpret_cast<const void*>(&horizon_kernel), 0,
                                 kHorizonThreads};
  return instance;
}

const Instance& key_horizon() noexcept {
  static const Instance instance{reinterpret_cast<const void*>(&key_horizon_kernel), 0,
                                 kHorizonThreads};
  return instance;
}

namespace {

template <int kK, int kColumns>
const Instance& join_of() noexcept {
  static_assert(sizeof(JoinMemory<kK, kColumns>) <= tile::kSharedBytesSm90);
  static const Instance instance{reinterpret_cast<const void*>(&join_kernel<kK, kColumns>),
                                 sizeof(JoinMemory<kK, kColumns>), kJoinThreads<kK>};
  return instance;
}

template <int kK>
const Instance& join_of(int columns) noexcept {
  return columns == 8 ? join_of<kK, 8>() : columns == 16 ? join_of<kK, 16>() : join_of<kK, 32>();
}

}  // namespace

const Instance& join(int K, int columns) noexcept {
  return K == 128 ? join_of<128>(columns) : join_of<64>(columns);
}

const Instance& summary_planner(bool key_gates) noexcept {
  static const Instance scalar{reinterpret_cast<const void*>(&summary_planner_kernel), 0,
                               kHorizonThreads};
  static const Instance key{reinterpret_cast<const void*>(&key_summary_planner_kernel), 0,
                            kHorizonThreads};
  return key_gates ? key : scalar;
}

const Instance& summary_join(int K) noexcept {
  static const Instance large{reinterpret_cast<const void*>(&summary_join_kernel<128>),
                              sizeof(SummaryJoinMemory<128>), device::kAffineThreads};
  static const Instance small{reinterpret_cast<const void*>(&summary_join_kernel<64>),
                              sizeof(SummaryJoinMemory<64>), device::kAffineThreads};
  return K == 128 ? large : small;
}

}  // namespace sluice::cuda::chunk_forward
