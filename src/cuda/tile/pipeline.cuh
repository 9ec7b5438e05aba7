// Ring of shared-memory stages guarded by pairs of mbarriers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_PIPELINE_CUH_
#define SLUICE_CUDA_TILE_PIPELINE_CUH_

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::tile {

/// The barriers of a ring: stage i holds data once full[i] completes, and is free once empty[i]
/// does.
template <int kStages>
struct RingBarriers {
  uint64_t full[kStages], empty[kStages];

  __device__ __forceinline__ void init(uint32_t producers, uint32_t consumers) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&full[i], producers);
      ptx::mbarrier_init(&empty[i], consumers);
    }
  }
};

/// One role's place in a ring. Producers call acquire(), consumers wait(); both then next().
template <int kStages>
struct RingCursor {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1u;
    }
  }
  /// Waits for the stage's data.
  __device__ __forceinline__ void wait(RingBarriers<kStages>& barriers) const {
    ptx::mbarrier_wait(&barriers.full[stage], phase);
  }
  /// Waits until the stage may be written; at once in the first round.
  __device__ __forceinline__ void acquire(RingBarriers<kStages>& barriers) const {
    ptx::mbarrier_wait(&barriers.empty[stage], phase ^ 1u);
  }
  /// Announces data: one arrival for the calling warp, after all its lanes are done.
  __device__ __forceinline__ void commit(RingBarriers<kStages>& barriers) const {
    __syncwarp();
    if ((threadIdx.x & 31u) == 0) ptx::mbarrier_arrive(&barriers.full[stage]);
  }
  /// Gives the stage back: one arrival for the calling warp, after all its lanes are done.
  __device__ __forceinline__ void release(RingBarriers<kStages>& barriers) const {
    __syncwarp();
    if ((threadIdx.x & 31u) == 0) ptx::mbarrier_arrive(&barriers.empty[stage]);
  }
};

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_PIPELINE_CUH_
