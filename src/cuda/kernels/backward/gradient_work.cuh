// Deals out the items of gradients to CTAs, and to the warps of one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_WORK_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_WORK_CUH_

#include "cuda/kernels/backward/segments.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"

namespace sluice::cuda::backward {

__device__ __forceinline__ Chunk chunk_of_item(const GradientItem& item) {
  return {item.sequence, item.batch, item.row, 0, item.tokens};
}

/// Where S and D' of an item lie in their maps.
template <class C>
__device__ __forceinline__ int32_t state_of(const GradientParams& p, const GradientItem& item) {
  if constexpr (!C::kWindows) return item.number;
  return static_cast<int32_t>(state_in_window(p.all.window, item.sequence, item.row));
}

/// Deals out items to the CTAs of a launch; a warp. The first is the CTA's own, then each has what
/// comes next. PERF not every gridDim.x-th: multiprocessors are not equally far from memory, and some
/// are the chains' for longer.
template <class C>
class ItemDealer {
 public:
  __device__ __forceinline__ ItemDealer(const GradientParams& p, int64_t items)
      : p_(p), items_(items), next_(blockIdx.x) {}

  /// The next item that has tokens, none if there is no more. Whole warps.
  __device__ __forceinline__ GradientItem next() {
    const StageParams& stage = p_.all.stage;
    for (int64_t number = take(); number < items_; number = take()) {
      const Chunk chunk = device::chunk_of(stage, slot(number / stage.H));
      if (C::kWindows && (chunk.tokens == 0 || !is_inside(p_.all.window, chunk))) continue;
      const int64_t before = device::chunks_before(stage, chunk.seq);
      if (chunk.tokens == 0 || !has_place(chunk, before)) continue;
      return {static_cast<int32_t>(chunk.seq),
              static_cast<int32_t>(chunk.batch),
              static_cast<int32_t>(chunk.row),
              chunk.tokens,
              static_cast<int32_t>(number % stage.H),
              static_cast<int32_t>(chunk.batch * p_.states_per_batch + before + chunk.number)};
    }
    return {};
  }

 private:
  __device__ __forceinline__ int64_t take() {
    const int64_t number = next_;
    uint32_t dealt = 0;  // BOUND: items and CTAs are fewer than 2^31 each
    if (tile::is_first_lane()) dealt = atomicAdd(p_.all.dealt, 1u);
    next_ = int64_t{gridDim.x} + __shfl_sync(~0u, dealt, 0);
    return number;
  }
  /// Behind the chains the order of slots. Beside them first the chunks that D' has yet to come to
  /// when the last S is there, as it comes to them, and what it leaves is still in the L2; then the
  /// others.
  __device__ __forceinline__ int64_t slot(int64_t number) const {
    if constexpr (C::kWindows) return first_slot(p_.all) + number;
    if (p_.all.ready == nullptr) return number;
    const StageParams& stage = p_.all.stage;
    const int64_t N = stage.cu_seqlens.data != nullptr ? 1 : stage.N, turn = number / N,
                  first = stage.slots * kLeftPercent / 100,
                  chunk = turn <= first ? first - turn : stage.slots + first - turn;
    return number % N * stage.slots + chunk;
  }

  /// Whether the chunk is none past the last, which offsets that do not ascend make.
  __device__ __forceinline__ bool has_place(const Chunk& chunk, int64_t before) const {
    const StageParams& stage = p_.all.stage;
    return C::kWindows ? before + chunk.number < stage.slots
                       : device::has_state(stage, chunk, before);
  }

  /// A step of D' takes 1.8 to 1.9 times as long as one of S beside it: docs/kernels/backward.md.
  static constexpr int64_t kLeftPercent = 47;

  const GradientParams& p_;
  int64_t items_, next_;
};

/// Reads the ring of items.
template <class C>
struct ItemReader {
  GradientShared<C>& s;
  tile::RingCursor<C::kWorkSlots> cursor;

  __device__ __forceinline__ explicit ItemReader(GradientShared<C>& shared) : s(shared) {}
  __device__ __forceinline__ GradientItem next() {
    // SYNC work_ring.full: every warp but the loader's waits for the next item
    cursor.wait(s.work_ring);
    const GradientItem item = s.work[cursor.slot];
    // SYNC work_ring.empty: the slot has been copied
    cursor.release(s.work_ring);
    cursor.next();
    return item;
  }
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_WORK_CUH_
