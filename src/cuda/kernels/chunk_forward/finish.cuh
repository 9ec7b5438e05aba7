// The two finish warps: the last merge of the inverse, and o to global memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/work.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::chunk_forward {

/// Writes `rows` rows of one half of o by hand; null source: zeros.
__device__ __forceinline__ void store_rows(const ChunkForwardParams& p, const WorkItem& item,
                                           int first, int rows, int half, const uint8_t* source) {
  int lane = static_cast<int>(threadIdx.x & 31u), batch = item.batch, head = item.head;
  int64_t token = int64_t{item.row} + first;
  // WHY: keeps this rare path's addresses out of the registers of the loop around it.
  asm volatile("" : "+r"(lane), "+r"(batch), "+r"(head), "+l"(token));
  uint16_t* out = static_cast<uint16_t*>(p.o_data) + batch * p.o_batch_stride +
                  token * p.o_token_stride + head * p.o_head_stride + half * 64;
#pragma unroll 1
  for (int row = lane >> 3; row < rows; row += 4) {
    const uint32_t piece = static_cast<uint32_t>(lane & 7);
    uint4 value = make_uint4(0, 0, 0, 0);
    if (source != nullptr) {
      value = *reinterpret_cast<const uint4*>(
          source + tile::swizzled_piece(static_cast<uint32_t>(row), piece));
    }
    *reinterpret_cast<uint4*>(out + row * p.o_token_stride + piece * 8) = value;
  }
}

/// One finish warp's places in the rings. WHY one counter for two rings: registers are scarce here.
template <class C>
struct FinishCursors {
  uint32_t chunk = 0;  ///< chunks since the start of the kernel; warp w merges those = w modulo 2
  tile::RingCursor<C::kMixStages> mix;
  tile::RingCursor<C::kVStages> v;  ///< next o to store

  static_assert(C::kGateStages == 4);
};

/// Tmat's lower left 32x32 block.
template <class C>
__device__ __forceinline__ void merge_chunk(SharedMemoryPlan<C>& s, const FinishCursors<C>& at) {
  using Io = typename C::Io;
  const uint32_t pair = at.chunk & 1u, gate = at.chunk & 3u;
  // SYNC gate_ring.full, block_ring.full: the finish warp waits for beta, A and its 32x32 inverses
  ptx::mbarrier_wait(&s.gate_ring.full[gate], (at.chunk >> 2) & 1u);
  ptx::mbarrier_wait(&s.block_ring.full[pair], (at.chunk >> 1) & 1u);
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

/// Sends o of chunk c out: whole chunks by the copy engine, the last partial one by hand.
template <class C>
__device__ __forceinline__ void store_chunk(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            const FinishCursors<C>& at, const WorkItem& item,
                                            int c) {
  const uint8_t* source = s.v[at.v.stage];
  // SYNC o_full: both state warpgroups have written o over v
  ptx::mbarrier_wait(&s.o_full[at.v.stage], at.v.phase);
  if (item.rows(c) < C::kChunk) {
    store_rows(p, item, c * C::kChunk, item.rows(c), 0, source);
    store_rows(p, item, c * C::kChunk, item.rows(c), 1, source + C::kHalfTileBytes);
  } else if ((threadIdx.x & 31u) == 0) {
    ptx::tma_store(&p.o, source, {0, item.row + c * C::kChunk, 0, item.head, item.batch});
    ptx::bulk_commit();
    ptx::bulk_wait_read();
  }
  // SYNC v_ring.empty: the stage may be overwritten
  at.v.release(s.v_ring);
}

/// Finish warp `parity`: every second chunk's merge, then the store of the o before it.
template <class C>
__device__ __forceinline__ void finish_role(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            uint32_t parity) {
  tile::RingCursor<C::kWorkSlots> work;
  FinishCursors<C> at;
  for (;; work.next()) {
    // SYNC work_ring.full: the finish warps wait for the next work item
    work.wait(s.work_ring);
    // WHY not a copy: the slot is kept until the item is done, which saves registers.
    const WorkItem& item = s.work[work.stage];
    if (!item.valid()) return;
    if (item.padded) store_rows(p, item, 0, item.tokens, static_cast<int>(parity), nullptr);
    // WHY one turn more than chunks: a single copy of the code that stores.
    for (int c = 0; c <= item.chunks() && item.chunks() > 0; ++c) {
      const bool mine = (at.chunk & 1u) == parity;
      if (mine && c < item.chunks()) merge_chunk<C>(s, at);
      if (mine && c > 0) store_chunk<C>(p, s, at, item, c - 1);
      if (c > 0) at.v.next();
      if (c < item.chunks()) {
        at.mix.next();
        ++at.chunk;
      }
    }
    // SYNC work_ring.empty: the item is done
    work.release(s.work_ring);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
