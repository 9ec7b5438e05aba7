// Runs the two finish warps: Tmat, the whole inverse included.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"

namespace sluice::cuda::chunk_forward {

/// Tmat of the chunk with this number since the start of the kernel, from A.
template <class C>
__device__ __forceinline__ void invert_chunk(SharedMemoryPlan<C>& s, uint32_t chunk) {
  static_assert(C::kGateSlots == 4 && C::kTmatSlots == 2);
  using Io = typename C::Io;
  const uint32_t pair = chunk & 1u, round = (chunk >> 1) & 1u, gate = chunk & 3u;
  // SYNC gate_ring.full, block_ring.full: the finish warp waits for beta and A
  tile::wait_phase(&s.gate_ring.full[gate], (chunk >> 2) & 1u);
  tile::wait_phase(&s.block_ring.full[pair], round);
  // SYNC tmat_ring.empty: the state warpgroups are done with the slot's previous Tmat
  tile::wait_phase(&s.tmat_ring.empty[pair], round ^ 1u);
  const float* beta = s.gates[gate].beta;
  const BlockTile blocks(s.blocks[pair].bytes), tmat(s.Tmat[pair].bytes);
  substitute_diagonal<Io>(s.diagonal[pair], blocks, tmat, beta);
  __syncwarp();
  merge_diagonals<Io>(blocks, tmat, beta);
  __syncwarp();
  merge_pairs<Io>(blocks, tmat, beta);
  __syncwarp();
  merge_halves<Io>(blocks, tmat, beta);
  ptx::fence_proxy_async();
  __syncwarp();
  if (tile::is_first_lane()) {
    // SYNC tmat_ring.full: Tmat is written
    ptx::mbarrier_arrive(&s.tmat_ring.full[pair]);
    // SYNC block_ring.empty, gate_ring.empty: both have been read
    ptx::mbarrier_arrive(&s.block_ring.empty[pair]);
    ptx::mbarrier_arrive(&s.gate_ring.empty[gate]);
  }
}

/// Finish warp `parity`: every second chunk.
template <class C>
__device__ __forceinline__ void finish_role(SharedMemoryPlan<C>& s, uint32_t parity) {
  device::WorkReader work(s.work_ring, s.work);
  uint32_t chunk = 0;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    for (int left = item.chunks(); left > 0; --left, ++chunk) {
      if ((chunk & 1u) == parity) invert_chunk<C>(s, chunk);
    }
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
