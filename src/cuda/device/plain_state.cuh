// Moves 32 columns of a head's state between memory and the shared memory of float32 kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_PLAIN_STATE_CUH_
#define SLUICE_CUDA_DEVICE_PLAIN_STATE_CUH_

#include "cuda/device/plain_products.cuh"

namespace sluice::cuda::device {

/// What a CTA works on: columns first_column .. of one head.
struct ChainWork {
  int64_t head, first_column;
  int columns;  ///< that exist of the 32
};

/// Calls move(k, column of the CTA) for all of a state that exists, neighbours in memory together.
template <class Move>
__device__ __forceinline__ void for_each_state(const StageParams& p, const ChainWork& work,
                                               const Move& move) {
  const auto K = static_cast<int>(p.K);
  const bool columns_inside = p.column_step == 1;
  for (auto i = static_cast<int>(threadIdx.x); i < K * kPlainColumns; i += kPlainThreads) {
    const int k = columns_inside ? i / kPlainColumns : i % K;
    const int column = columns_inside ? i % kPlainColumns : i / K;
    if (column < work.columns) move(k, column);
  }
}

__device__ __forceinline__ int64_t state_element(const StageParams& p, const ChainWork& work, int k,
                                                 int column) {
  return k * p.row_step + (work.first_column + column) * p.column_step;
}

__device__ __forceinline__ void store_state(const StageParams& p, const ChainWork& work, void* to,
                                            int64_t start, Number number, const float* S) {
  for_each_state(p, work, [&](int k, int column) {
    store_number(to, start + state_element(p, work, k, column), number,
                 S[k * kPlainColumns + column]);
  });
}

/// S <- zeros, with a barrier behind them.
__device__ __forceinline__ void clear_state(const StageParams& p, float* S) {
  for (auto i = static_cast<int>(threadIdx.x); i < p.K * kPlainColumns; i += kPlainThreads) {
    S[i] = 0.0f;
  }
  __syncthreads();
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_PLAIN_STATE_CUH_
