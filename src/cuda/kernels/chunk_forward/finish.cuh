// The two finish warps: the last merge of the inverse.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/work.cuh"

namespace sluice::cuda::chunk_forward {

/// One finish warp's places in the rings. WHY one counter for two rings: registers are scarce here.
template <class C>
struct FinishCursors {
  uint32_t chunk = 0;  ///< chunks since the start of the kernel; warp w merges those = w modulo 2
  tile::RingCursor<C::kMixStages> mix;

  static_assert(C::kGateStages == 4);
};

/// Tmat's lower left 32x32 block.
template <class C>
__device__ __forceinline__ void merge_chunk(SharedMemoryPlan<C>& s, const FinishCursors<C>& at) {
  using Io = typename C::Io;
  const uint32_t pair = at.chunk & 1u, gate = at.chunk & 3u;
  // SYNC gate_ring.full, block_ring.full: the finish warp waits for beta, A and its 32x32 inverses
  tile::wait_phase(&s.gate_ring.full[gate], (at.chunk >> 2) & 1u);
  tile::wait_phase(&s.block_ring.full[pair], (at.chunk >> 1) & 1u);
  const float* beta = s.gates[gate].beta;
  const BlockTile blocks(s.blocks[pair]), tmat(s.mix[at.mix.stage].Tmat);
  merge_row<Io, 2>(blocks, tmat, beta);
  merge_row<Io, 3>(blocks, tmat, beta);
  ptx::fence_proxy_async();
  __syncwarp();
  if ((threadIdx.x & 31u) == 0) {
    // SYNC mix_ring.full: the rest of Tmat is written
    ptx::mbarrier_arrive(&s.mix_ring.full[at.mix.stage]);
    // SYNC block_ring.empty, gate_ring.empty: both have been read
    ptx::mbarrier_arrive(&s.block_ring.empty[pair]);
    ptx::mbarrier_arrive(&s.gate_ring.empty[gate]);
  }
}

/// Finish warp `parity`: every second chunk's merge.
template <class C>
__device__ __forceinline__ void finish_role(SharedMemoryPlan<C>& s, uint32_t parity) {
  WorkReader<C> work(s);
  FinishCursors<C> at;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    for (int left = item.chunks(); left > 0; --left) {
      if ((at.chunk & 1u) == parity) merge_chunk<C>(s, at);
      at.mix.next();
      ++at.chunk;
    }
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
