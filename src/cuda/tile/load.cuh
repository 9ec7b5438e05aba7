// Requests tiles of the copy engine, stage by stage of a ring.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_LOAD_CUH_
#define SLUICE_CUDA_TILE_LOAD_CUH_

#include "cuda/ptx/tma.cuh"
#include "cuda/tile/pipeline.cuh"

namespace sluice::cuda::tile {

/// Requests one tile of 64 tokens.
template <int kStages>
__device__ __forceinline__ void load_tile(uint8_t* destination, const CUtensorMap* map,
                                          RingBarriers<kStages>& ring, RingCursor<kStages>& cursor,
                                          ptx::BoxOrigin at, uint32_t bytes) {
  // SYNC ring.empty: the loader waits until all readers of the stage's previous tile are done
  cursor.acquire(ring);
  // SYNC ring.full: completes when the copy engine has written the tile
  ptx::mbarrier_arrive_expect(&ring.full[cursor.stage], bytes);
  ptx::tma_load(destination, map, at, &ring.full[cursor.stage]);
  cursor.next();
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_LOAD_CUH_
