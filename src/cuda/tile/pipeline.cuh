// Guards a ring of slots in shared memory by pairs of mbarriers, and requests tiles into it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_PIPELINE_CUH_
#define SLUICE_CUDA_TILE_PIPELINE_CUH_

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::tile {

/// Nothing, but in test builds with SLUICE_STRESS_ROLES: sleeps for a while, so that tests can show
/// that no result depends on who is late. For a millisecond at a time one warp or one warpgroup of
/// all CTAs is slow at each of its waits; the others are now and then.
__device__ __forceinline__ void delay_role() {
#if defined(SLUICE_STRESS_ROLES)
  uint32_t nanoseconds, cycles;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(nanoseconds));
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
  const uint32_t warp = threadIdx.x >> 5;
  const uint32_t chosen = ((nanoseconds >> 20) * 0x9e3779b9u) >> 27;
  const bool slow = chosen < 16 ? chosen == warp : ((chosen >> 2) & 3u) == warp >> 2;
  uint32_t noise = (cycles ^ (blockIdx.x * 16 + warp) * 0x85ebca6bu) * 0x2c1b3c6du;
  noise ^= noise >> 15;
  __nanosleep(slow ? noise & 4095u : (noise & 7u) == 0 ? (noise >> 16) & 1023u : 0);
#endif
}

/// Waits until the barrier's phase of the given parity is complete. Rings wait through this.
__device__ __forceinline__ void wait_phase(uint64_t* barrier, uint32_t parity) {
  delay_role();
  ptx::mbarrier_wait(barrier, parity);
}

/// The barriers of a ring: slot i holds data once full[i] completes, and is free once empty[i]
/// does.
template <int kSlots>
struct RingBarriers {
  uint64_t full[kSlots], empty[kSlots];

  __device__ __forceinline__ void init(uint32_t producers, uint32_t consumers) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(&full[i], producers);
      ptx::mbarrier_init(&empty[i], consumers);
    }
  }
};

/// One role's place in a ring. Producers call acquire(), consumers wait(); both then next().
template <int kSlots>
struct RingCursor {
  int slot = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1u;
    }
  }
  /// Waits for the slot's data.
  __device__ __forceinline__ void wait(RingBarriers<kSlots>& barriers) const {
    wait_phase(&barriers.full[slot], phase);
  }
  /// Whether the slot's data is there. PERF: asked for several rings in a row, the answers'
  /// latencies overlap; whoever gets a no then waits.
  __device__ __forceinline__ uint32_t ready(RingBarriers<kSlots>& barriers) const {
    return ptx::mbarrier_try(&barriers.full[slot], phase);
  }
  /// Whether the slot may be written, likewise.
  __device__ __forceinline__ uint32_t vacant(RingBarriers<kSlots>& barriers) const {
    return ptx::mbarrier_try(&barriers.empty[slot], phase ^ 1u);
  }
  /// Waits until the slot may be written; at once in the first round.
  __device__ __forceinline__ void acquire(RingBarriers<kSlots>& barriers) const {
    wait_phase(&barriers.empty[slot], phase ^ 1u);
  }
  /// Announces data: one arrival for the calling warp, after all its lanes are done.
  __device__ __forceinline__ void commit(RingBarriers<kSlots>& barriers) const {
    __syncwarp();
    if ((threadIdx.x & 31u) == 0) ptx::mbarrier_arrive(&barriers.full[slot]);
  }
  /// Gives the slot back: one arrival for the calling warp, after all its lanes are done.
  __device__ __forceinline__ void release(RingBarriers<kSlots>& barriers) const {
    __syncwarp();
    if ((threadIdx.x & 31u) == 0) ptx::mbarrier_arrive(&barriers.empty[slot]);
  }
};

/// Requests one tile.
template <class Tile, int kSlots>
__device__ __forceinline__ void load_tile(Tile& to, const CUtensorMap* map,
                                          RingBarriers<kSlots>& ring, RingCursor<kSlots>& cursor,
                                          ptx::BoxOrigin at) {
  // SYNC ring.empty: the loader waits until all readers of the slot's previous tile are done
  cursor.acquire(ring);
  // SYNC ring.full: completes when the copy engine has written the tile
  ptx::mbarrier_arrive_expect(&ring.full[cursor.slot], Tile::kBytes);
  ptx::tma_load(to.bytes, map, at, &ring.full[cursor.slot]);
  cursor.next();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_PIPELINE_CUH_
