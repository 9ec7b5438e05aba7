// The state warpgroup of relay.cuh: the chain of states, and nothing that could be elsewhere.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_STATE_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_STATE_CUH_

#include "cuda/kernels/linear_attention/relay_config.h"
#include "cuda/kernels/linear_attention/state.cuh"
#include "cuda/tile/block_tile.cuh"

namespace sluice::cuda::linear_attention {

/// The state warpgroup's places in the rings.
template <class C>
struct RelayCursors {
  tile::RingCursor<C::kKStages> k;
  tile::RingCursor<C::kVStages> v;        ///< a chunk ahead of the others
  tile::RingCursor<C::kGateStages> gate;  ///< likewise
  tile::RingCursor<C::kStateStages> state;
  uint32_t v_offset = OutputPlace(0).v_offset;
};

/// Left operand of the next chunk's update, V^T diag(write), and its decay.
struct Written {
  uint32_t w[16];
  float decay;
};

/// Prepares the update of a chunk of `rows` rows.
template <class C>
__device__ __forceinline__ void prepare_update(SharedMemoryPlan<C>& s, RelayCursors<C>& at,
                                               int rows, Written& next) {
  const uint32_t v_ready = at.v.ready(s.v_ring), gate_ready = at.gate.ready(s.gate_ring);
  // SYNC v_ring.full, gate_ring.full: the state warpgroup waits for v and the factors
  if (!v_ready) at.v.wait(s.v_ring);
  if (!gate_ready) at.gate.wait(s.gate_ring);
  const GateStage& gate = s.gates[at.gate.stage];
  uint32_t r[16];
  load_values(r, ptx::shared_address(s.v[at.v.stage]) + at.v_offset, rows);
  scale_values<C>(next.w, r, gate.write);
  next.decay = gate.decay;
  // SYNC v_ring.empty, gate_ring.empty: this warp's reads of them are over
  at.v.release(s.v_ring);
  at.gate.release(s.gate_ring);
  at.v.next();
  at.gate.next();
}

/// S, rounded, to the outputs.
template <class C>
__device__ __forceinline__ void hand_over(SharedMemoryPlan<C>& s, RelayCursors<C>& at,
                                          const float (&S)[C::kK / 2]) {
  uint32_t packed[C::kK / 4];
  pack_all<C>(packed, S);
  // SYNC state_ring.empty: an output warpgroup is done with the stage's previous state
  at.state.acquire(s.state_ring);
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
#pragma unroll
  for (int half = 0; half < C::kK / 64; ++half) {
    const tile::BlockTile blocks(s.S[at.state.stage] + half * C::kHalfTileBytes);
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      ptx::stmatrix_x4(blocks.block(warp, block), packed + 16 * half + 4 * block);
    }
  }
  ptx::fence_proxy_async();
  // SYNC state_ring.full: this warp's rows of S are written
  at.state.commit(s.state_ring);
  at.state.next();
}

/// The keys of a partial chunk: rows past the end, which may be NaN, become zeros.
template <class C>
__device__ __forceinline__ void clear_keys(uint8_t* k, int rows) {
  chunk_forward::zero_tail<C>(k, rows);
  ptx::fence_proxy_async();
  // SYNC kOutputLow: all of the tail is zero
  ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kOutputLow), 128);
}

/// One work item: the chain of its states, and states in and out.
template <class C>
__device__ __forceinline__ void relay_item(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                           RelayCursors<C>& at, const WorkItem& item,
                                           float (&S)[C::kK / 2]) {
  chunk_forward::load_entering<C>(p, item, 0, S);
  const int chunks = item.chunks();
  Written next{};
  if (chunks > 0) prepare_update<C>(s, at, item.rows(0), next);
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) {
    hand_over<C>(s, at, S);
#pragma unroll
    for (float& x : S) x *= next.decay;
    // SYNC k_ring.full: the state warpgroup waits for k
    at.k.wait(s.k_ring);
    uint8_t* const k = s.k[at.k.stage];
    if (item.rows(c) < C::kChunk) clear_keys<C>(k, item.rows(c));
    uint32_t w[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) w[i] = next.w[i];
    ptx::pin(w);
    ptx::wgmma_fence();
    chunk_forward::issue_update<C>(S, w, tile::mn_major(ptx::shared_address(k), C::kHalfTileBytes));
    if (c + 1 < chunks) prepare_update<C>(s, at, item.rows(c + 1), next);
    ptx::wgmma_wait<0>();
    ptx::pin(S);
    ptx::pin(w);
    // SYNC k_ring.empty: this warp's reads of k are over
    at.k.release(s.k_ring);
    at.k.next();
    if (p.checkpoints.data != nullptr) chunk_forward::store_checkpoint(p, item, 0, c, S);
  }
  chunk_forward::store_leaving<C>(p, item, 0, S);
}

template <class C>
__device__ __forceinline__ void relay_state_role(const ChunkForwardParams& p,
                                                 SharedMemoryPlan<C>& s) {
  chunk_forward::WorkReader<C> work(s);
  RelayCursors<C> at;
  float S[C::kK / 2];
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    if (item.padded) {
      chunk_forward::store_rows(p, item, 0, item.tokens, 0, nullptr);
    } else {
      relay_item<C>(p, s, at, item, S);
    }
  }
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_STATE_CUH_
