// The two finish warps: the upper merges of the inverse, and o to global memory.
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
  const int lane = static_cast<int>(threadIdx.x & 31u);
  uint16_t* out = static_cast<uint16_t*>(p.o_data) + item.batch * p.o_batch_stride +
                  (int64_t{item.row} + first) * p.o_token_stride + item.head * p.o_head_stride +
                  half * 64;
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

/// One finish warp's places in the rings.
template <class C>
struct FinishCursors {
  tile::RingCursor<C::kGateStages> gate;
  tile::RingCursor<2> blocks;
  tile::RingCursor<C::kMixStages> mix;
  tile::RingCursor<C::kVStages> v, v_read;  ///< next o to store; next stage to give back
};

/// Tmat's blocks off the 16x16 diagonal. The two warps share them by the number of products.
template <class C>
__device__ __forceinline__ void merge_chunk(SharedMemoryPlan<C>& s, FinishCursors<C>& at,
                                            int half) {
  using Io = typename C::Io;
  // SYNC gate_ring.full, block_ring.full: the finish warps wait for beta, A and its 16x16 inverses
  at.gate.wait(s.gate_ring);
  at.blocks.wait(s.block_ring);
  const float* beta = s.gates[at.gate.stage].beta;
  const BlockTile blocks(s.blocks[at.blocks.stage]), tmat(s.mix[at.mix.stage].Tmat);
  merge_pair<Io>(blocks, tmat, 2 * half + 1, beta);
  // SYNC kMerge: the finish warps wait for each other's 32x32 inverse
  ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kMerge), 64);
  merge_halves<Io>(blocks, tmat, 2 + half, 0, beta);
  merge_halves<Io>(blocks, tmat, 3 - half, 1, beta);
  ptx::fence_proxy_async();
  // SYNC mix_ring.full: the rest of Tmat is written
  at.mix.commit(s.mix_ring);
  // SYNC block_ring.empty, gate_ring.empty: both have been read
  at.blocks.release(s.block_ring);
  at.gate.release(s.gate_ring);
  at.mix.next();
  at.blocks.next();
  at.gate.next();
}

/// Gives back the v stage of the last store.
template <class C>
__device__ __forceinline__ void release_stored(SharedMemoryPlan<C>& s, FinishCursors<C>& at) {
  ptx::bulk_wait_read();
  // SYNC v_ring.empty: this half of the stage may be overwritten
  at.v_read.release(s.v_ring);
  at.v_read.next();
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
  WorkReader<C> work(s);
  FinishCursors<C> at;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    if (item.padded) store_rows(p, item, 0, item.tokens, half, nullptr);
    const int chunks = item.chunks();
    for (int c = 0; c < chunks; ++c) {
      merge_chunk<C>(s, at, half);
      if (c > 0) store_chunk<C>(p, s, at, item, c - 1, half);
    }
    if (chunks > 0) {
      store_chunk<C>(p, s, at, item, chunks - 1, half);
      release_stored<C>(s, at);
    }
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_FINISH_CUH_
