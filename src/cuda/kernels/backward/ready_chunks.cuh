// Hands chunks from the chains of chunk_backward to its gradients while the chains still run.
//
// Protocol  The launch before the chains clears the counts. The storing warp of a chain counts a chunk
//           once S and e, or D' and dv, are in memory. CTAs of gradients come to multiprocessors that
//           CTAs of chains leave, for these let the next launch begin when all of them run, and wait
//           for the counts of their items. Chains wait for nobody, and a CTA of gradients that has
//           waited long waits for the end of the chains, so that nothing hangs whatever offsets hold
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_READY_CHUNKS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_READY_CHUNKS_CUH_

#include "cuda/kernels/backward/tile_config.h"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/signal.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/lanes.cuh"

namespace sluice::cuda::backward {

/// Clears what is counted; all CTAs of a launch of kThreads threads.
template <int kThreads>
__device__ __forceinline__ void clear_counts(const BackwardParams& b) {
  if (blockIdx.y > 0) return;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x,
                step = int64_t{gridDim.x} * kThreads;
#pragma unroll 1
  for (uint32_t* at = (b.ready == nullptr ? b.dealt : b.ready) + first; at <= b.dealt; at += step) {
    *at = 0;
  }
}

/// Where a chunk and value head are counted. Null if nowhere: offsets that do not ascend make states
/// past the last.
__device__ __forceinline__ uint32_t* count_of(const BackwardParams& b, int64_t state,
                                              int64_t head) {
  uint32_t* const at = b.ready + state * b.stage.HV + head;
  return at < b.dealt ? at : nullptr;
}

/// Counts what a chain leaves; its storing warp.
class ChunkCounter {
 public:
  /// @param groups blocks of columns that the item has
  __device__ __forceinline__ ChunkCounter(const BackwardParams& b, int64_t head, uint32_t groups)
      : b_(b), head_(head), groups_(groups) {}

  /// Counts the chunks of steps until `end`, but none while they are few: all but the last kPending
  /// bulk groups of the first lane, and what lanes have stored, are theirs. state(step): a chunk's.
  template <int kPending, int kFew, class State>
  __device__ __forceinline__ void count(int end, const State& state) {
    if (b_.ready == nullptr || end - counted_ < kFew) return;
    __syncwarp();
    if (tile::is_first_lane()) {
      ptx::bulk_wait<kPending>();
      ptx::fence_release();
      for (int step = counted_; step < end; ++step) {
        uint32_t* const count = count_of(b_, state(step), head_);
        if (count != nullptr) ptx::signal(count, groups_);
      }
    }
    counted_ = end;
  }

 private:
  const BackwardParams& b_;
  int64_t head_;
  uint32_t groups_;
  int counted_ = 0;
};

/// Waits for chunks; a warp.
class ChunkWaiter {
 public:
  /// Returns when a chunk of these heads, head(0) to head(r - 1), is in memory, also for the copy
  /// engine. Whole warps.
  template <class Head>
  __device__ __forceinline__ void wait(const BackwardParams& b, int64_t state, const Head& head) {
    if (b.ready == nullptr) return;
    const auto all = static_cast<uint32_t>(2 * b.stage.V / 64);
    for (int turn = tile::lane(); turn < b.stage.r; turn += 32) {
      const uint32_t* const count = count_of(b, state, head(turn));
      for (int turns = 0; count != nullptr && !chains_ended_; ++turns) {
        if (ptx::read_signal(count) >= all) break;
        if (turns == kMostTurns) end();
        ptx::pause(kPause);
      }
    }
    __syncwarp();
    ptx::fence_global_copies();
  }

  /// Returns when the chains have ended, before which a launch that they let in must not end.
  __device__ __forceinline__ void end() {
    ptx::wait_for_dependencies();
    chains_ended_ = true;
  }

 private:
  static constexpr uint32_t kPause = 100;     ///< ns
  static constexpr int kMostTurns = 1 << 16;  ///< 50 ms or so

  bool chains_ended_ = false;  ///< as this lane knows
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_READY_CHUNKS_CUH_
