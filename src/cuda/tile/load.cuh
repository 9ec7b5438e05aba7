// Requests tiles of the copy engine, slot by slot of a ring.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_LOAD_CUH_
#define SLUICE_CUDA_TILE_LOAD_CUH_

#include "cuda/ptx/tma.cuh"
#include "cuda/tile/pipeline.cuh"

namespace sluice::cuda::tile {

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

#endif  // SLUICE_CUDA_TILE_LOAD_CUH_
