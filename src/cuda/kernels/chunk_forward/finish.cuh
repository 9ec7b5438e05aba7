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

/// One finish warp's places in the rings. WHY one counter for three rings: registers are scarce here.
template <class C>
struct FinishCursors {
  uint32_t chunk = 0;  ///< chunks merged since the start of the kernel
  tile::RingCursor<C::kVStages> v;  ///< next o to store

  static_assert(C::kMixStages == 2 && C::kGateStages == 4);
  __device__ __forceinline__ uint32_t pair_stage() const { return chunk & 1u; }
  __device__ __forceinline__ uint32_t gate_stage() const { return chunk & 3u; }
};

/// Tmat's lower left 32x32 block. The two warps share it by the number of products.
template <class C>
__device__ __forceinline__ void merge_chunk(SharedMemoryPlan<C>& s, FinishCursors<C>& at,
                                            int half) {
  using Io = typename C::Io;
  const uint32_t pair = at.pair_stage(), gate = at.gate_stage();
  // SYNC gate_ring.full, block_ring.full: the finish warps wait for beta, A and its 32x32 inverses
  ptx::mbarrier_wait(&s.gate_ring.full[gate], (at.chunk >> 2) & 1u);
  ptx::mbarrier_wait(&s.block_ring.full[pair], (at.chunk >> 1) & 1u);
  const float* beta = s.gates[gate].beta;
  const BlockTile blocks(s.blocks[pair]), tmat(s.mix[pair].Tmat);
  merge_halves<Io>(blocks, tmat, 2 + half, 0, beta);
  merge_halves<Io>(blocks, tmat, 3 - half, 1, beta);
  ptx::fence_proxy_async();
  __syncwarp();
  if ((threadIdx.x & 31u) == 0) {
    // SYNC mix_ring.full: the rest of Tmat is written
    ptx::mbarrier_arrive(&s.mix_ring.full[pair]);
    // SYNC block_ring.empty, gate_ring.empty: both have been read
    ptx::mbarrier_arrive(&s.block_ring.empty[pair]);
    ptx::mbarrier_arrive(&s.gate_ring.empty[gate]);
  }
  ++at.chunk;
}

/// Gives back the v stage of the last store.
template <class C>
__device__ __forceinline__ void release_stored(SharedMemoryPlan<C>& s,
                                               const FinishCursors<C>& at) {
  const int stored = at.v.stage == 0 ? C::kVStages - 1 : at.v.stage - 1;
  ptx::bulk_wait_read();
  __syncwarp();
  // SYNC v_ring.empty: this half of the stage may be overwritten
  if ((threadIdx.x & 31u) == 0) ptx::mbarrier_arrive(&s.v_ring.empty[stored]);
}

/// Sends o of chunk c out: whole chunks by the copy engine, the last partial one by hand.
template <class C>
__device__ __forceinline__ void store_chunk(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            FinishCursors<C>& at, const WorkItem& item, int c,
                                            int half) {
  if (c > 0) release_stored<C>(s, at);
  // SYNC o_full: the state warpgroup of this half has written o over v
  ptx::mbarrier_wait(&s.o_full[half][at.v.stage], at.v.phase);
  const uint8_t* source = s.v[at.v.stage] + half * C::kHalfTileBytes;
  if (item.rows(c) < C::kChunk) {
    store_rows(p, item, c * C::kChunk, item.rows(c), half, source);
  } else if ((threadIdx.x & 31u) == 0) {
    ptx::tma_store(&p.o, source, {0, item.row + c * C::kChunk, half, item.head, item.batch});
    ptx::bulk_commit();
  }
  at.v.next();
}

/// Finish warp `half`: merges of each chunk, then the store of its half of the o before.
template <class C>
__device__ __forceinline__ void finish_role(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            int half) {
  tile::RingCursor<C::kWorkSlots> work;
  FinishCursors<C> at;
  for (;; work.next()) {
    // SYNC work_ring.full: the finish warps wait for the next work item
    work.wait(s.work_ring);
    // WHY not a copy: the slot is kept until the item is done, which saves registers.
    const WorkItem& item = s.work[work.stage];
    if (!item.valid()) return;
    if (item.padded) store_rows(p, item, 0, item.tokens, half, nullptr);
    // WHY one turn more than chunks: a single copy of the code that stores.
    for (int c = 0; c <= item.chunks() && item.chunks() > 0; ++c) {
      if (c < item.chunks()) merge_chunk<C>(s, at, half);
      if (c > 0) store_chunk<C>(p, s, at, item, c - 1, half);
    }
    if (item.chunks() > 0) release_stored<C>(s, at);
    // SYNC work_ring.empty: the item is done
    work.release(s.work_ring);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
