// The output warpgroups of relay.cuh: O = scale diag(e^G) Q S + P V, chunks by turns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_OUTPUTS_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_OUTPUTS_CUH_

#include "cuda/kernels/chunk_forward/prepare_tiles.cuh"
#include "cuda/kernels/chunk_forward/state.cuh"
#include "cuda/kernels/linear_attention/relay_config.h"
#include "cuda/tile/block_tile.cuh"

namespace sluice::cuda::linear_attention {

/// An output warpgroup's places in the rings.
template <class C>
struct OutputCursors {
  tile::RingCursor<C::kKStages> k;
  tile::RingCursor<C::kQStages> q;
  tile::RingCursor<C::kVStages> v;
  tile::RingCursor<C::kGateStages> gate;
  tile::RingCursor<C::kStateStages> state;

  __device__ __forceinline__ void next() {
    k.next();
    q.next();
    v.next();
    gate.next();
    state.next();
  }
};

/// This thread's first row of a result.
__device__ __forceinline__ int first_row() {
  return static_cast<int>((threadIdx.x & 127u) >> 5) * 16 +
         static_cast<int>((threadIdx.x & 31u) >> 2);
}

/// Scores with decays and mask, rounded, as a left operand. NUM: one exponential of a difference an
/// element, so that growth is no more likely to overflow than the result.
template <class C>
__device__ __forceinline__ void decay_rows(uint32_t (&P)[16], const float (&x)[32], const float* G,
                                           float scale) {
  const int row = first_row(), column0 = static_cast<int>(threadIdx.x & 3u) * 2;
  const float g_row[2] = {G[row], G[row + 8]};
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int column = 8 * t + column0;
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int difference = row + 8 * i - column, at = 4 * t + 2 * i;
      // WHY a choice: above the diagonal the exponential may be infinite.
      const float first = difference >= 0 ? tile::exp2_fast(g_row[i] - g.x) * scale * x[at] : 0.0f;
      const float second =
          difference >= 1 ? tile::exp2_fast(g_row[i] - g.y) * scale * x[at + 1] : 0.0f;
      P[2 * t + i] = tile::Packed<typename C::Io>::pack(first, second);
    }
  }
}

/// o += P V.
template <class C>
__device__ __forceinline__ void issue_values(float (&o)[32], const uint32_t (&P)[16],
                                             const uint8_t* v) {
  typename C::Io io{};
  const uint64_t tile = tile::mn_major(ptx::shared_address(v), C::kHalfTileBytes);
  constexpr uint32_t kStep = 16 * tile::kRowBytes;
  chunk_forward::update_step<0>(io, o, P, tile);
  chunk_forward::update_step<4>(io, o, P, tile::advance(tile, kStep));
  chunk_forward::update_step<8>(io, o, P, tile::advance(tile, 2 * kStep));
  chunk_forward::update_step<12>(io, o, P, tile::advance(tile, 3 * kStep));
  ptx::wgmma_commit();
}

/// What zero_tail() wants of a tile: here v's.
template <class C>
struct ValueTile {
  static constexpr int kK = C::kV;
  static constexpr uint32_t kHalfTileBytes = C::kHalfTileBytes;
};

/// Barrier of an output warpgroup.
__device__ __forceinline__ uint32_t output_barrier(int group) {
  return static_cast<uint32_t>(chunk_forward::NamedBarrier::kParkLow) +
         static_cast<uint32_t>(group);
}

/// o of the chunk at the cursors, whose stages go back.
template <class C>
__device__ __forceinline__ void compute_output(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                               const OutputCursors<C>& at, int group, int rows,
                                               float (&o)[32]) {
  float scores[32];
  uint32_t P[16];
  const uint8_t *q = s.q[at.q.stage], *v = s.v[at.v.stage];
  // SYNC k_ring.full, q_ring.full: output warpgroups wait for k and q
  at.k.wait(s.k_ring);
  at.q.wait(s.q_ring);
  ptx::wgmma_fence();
  chunk_forward::issue_product<C>(scores, q, s.k[at.k.stage]);
  ptx::wgmma_commit();
  // SYNC gate_ring.full: output warpgroups wait for G
  at.gate.wait(s.gate_ring);
  // SYNC v_ring.full: output warpgroups wait for v
  at.v.wait(s.v_ring);
  if (rows < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    chunk_forward::zero_tail<ValueTile<C>>(s.v[at.v.stage], rows);
    ptx::fence_proxy_async();
    // SYNC kParkLow, kParkHigh: all of the tail is zero
    ptx::named_barrier_sync(output_barrier(group), 128);
  }
  // SYNC state_ring.full: output warpgroups wait for S
  at.state.wait(s.state_ring);
  ptx::wgmma_fence();
  chunk_forward::issue_product<C>(o, q, s.S[at.state.stage]);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>();
  ptx::pin(scores);
  // SYNC k_ring.empty: this warp's reads of k are over
  at.k.release(s.k_ring);
  const GateStage& gate = s.gates[at.gate.stage];
  decay_rows<C>(P, scores, gate.G, p.scale);
  const int row = first_row();
  const float factor[2] = {gate.query[row], gate.query[row + 8]};
  // SYNC gate_ring.empty: this warp's reads of G are over
  at.gate.release(s.gate_ring);
  ptx::wgmma_wait<0>();
  ptx::pin(o);
  // SYNC q_ring.empty, state_ring.empty: this warp's reads of q and S are over
  at.q.release(s.q_ring);
  at.state.release(s.state_ring);
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] *= factor[i / 2 % 2];
  ptx::wgmma_fence();
  issue_values<C>(o, P, v);
  ptx::wgmma_wait<0>();
  ptx::pin(o);
  ptx::pin(P);
  // SYNC v_ring.empty: this warp's reads of v are over
  at.v.release(s.v_ring);
}

/// o of chunk c from registers to memory, through the warpgroup's tile.
template <class C>
__device__ __forceinline__ void send_rows(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                          const WorkItem& item, int c, int group,
                                          const float (&o)[32]) {
  const uint32_t barrier = output_barrier(group);
  uint8_t* const tile = s.o[group];
  chunk_forward::wait_for_store();
  // SYNC kParkLow, kParkHigh: the store before has read the tile
  ptx::named_barrier_sync(barrier, 128);
  uint32_t packed[16];
  chunk_forward::pack_all<C>(packed, o);
  const tile::BlockTile blocks(tile);
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    ptx::stmatrix_x4(blocks.block(warp, block), packed + 4 * block);
  }
  ptx::fence_proxy_async();
  // SYNC kParkLow, kParkHigh: the tile is written
  ptx::named_barrier_sync(barrier, 128);
  if (item.rows(c) < C::kChunk) {
    chunk_forward::store_rows(p, item, c * C::kChunk, item.rows(c), 0, tile);
  } else if ((threadIdx.x & 127u) == 0) {
    ptx::tma_store(&p.o, tile,
                   {0, item.row + c * C::kChunk, item.column / 64, item.head, item.batch});
    ptx::bulk_commit();
  }
}

/// Output warpgroup `group`.
template <class C>
__device__ __forceinline__ void outputs_role(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                             int group) {
  chunk_forward::WorkReader<C> work(s);
  OutputCursors<C> at;
  int turn = 0;
  float o[32];
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const int chunks = item.chunks();
#pragma unroll 1
    for (int c = 0; c < chunks; ++c, turn ^= 1) {
      if (turn == group) {
        compute_output<C>(p, s, at, group, item.rows(c), o);
        if (c >= item.skip) send_rows<C>(p, s, item, c, group, o);
      }
      at.next();
    }
  }
  chunk_forward::wait_for_store();
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_OUTPUTS_CUH_
