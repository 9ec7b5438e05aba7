// Runs the scores warpgroup: P = scale Gamma * tril(Qc Kc^T) of every chunk, ahead of the state.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SCORES_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SCORES_CUH_

#include "cuda/kernels/linear_attention/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::linear_attention {

/// This warp's rows of a chunk's P, packed: blocks of 16 columns up to the one on the diagonal.
using PackedScores = uint32_t[4][4];

/// x times decays, masked, rounded. NUM: one exponential of a difference an element, so that growth
/// is no more likely to overflow than the result.
template <class Io>
__device__ __forceinline__ void decay_scores(PackedScores& out, const tile::Accumulator<64>& scores,
                                             int warp, const float* G, float scale) {
  const auto& x = scores.x;
  const int row = warp * 16 + tile::lane_row();
  const float g_row[2] = {G[row], G[row + 8]};
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > warp) break;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int column = block * 16 + t * 8 + tile::lane_column();
      const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = block * 8 + t * 4 + i * 2, difference = row + i * 8 - column;
        const float first = tile::exp2_fast(g_row[i] - g.x) * scale * x[at];
        const float second = tile::exp2_fast(g_row[i] - g.y) * scale * x[at + 1];
        // WHY a choice: above the diagonal the exponential may be infinite.
        out[block][2 * t + i] =
            tile::Packed<Io>::pack(difference >= 0 ? first : 0.0f, difference >= 1 ? second : 0.0f);
      }
    }
  }
}

/// The scores warpgroup's places in the rings.
template <class C>
struct ScoreCursors {
  tile::RingCursor<C::kKSlots> k;
  tile::RingCursor<C::kQSlots> q;
  tile::RingCursor<C::kPSlots> p;
  tile::RingCursor<C::kGateSlots> gate;
};

/// Issues Qc Kc^T of the chunk at the cursors.
template <class C>
__device__ __forceinline__ void issue_scores(SharedMemoryPlan<C>& s, const ScoreCursors<C>& at,
                                             tile::Accumulator<64>& acc) {
  // SYNC k_ring.full, q_ring.full: the scores warpgroup waits for k and q
  at.k.wait(s.k_ring);
  at.q.wait(s.q_ring);
  ptx::wgmma_fence();
  tile::issue_product(acc, s.q[at.q.slot], s.k[at.k.slot]);
  ptx::wgmma_commit();
}

/// Ends the product of the chunk at the cursors and gives its tiles back; P of it, packed.
template <class C>
__device__ __forceinline__ void take_scores(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            ScoreCursors<C>& at, int warp,
                                            tile::Accumulator<64>& acc, PackedScores& packed,
                                            int rows) {
  // SYNC gate_ring.full: the scores warpgroup waits for G
  at.gate.wait(s.gate_ring);
  ptx::wgmma_wait<0>();
  tile::pin(acc);
  if (rows < C::kChunk) {
    // WHY here: no product of this warpgroup reads the tile now; the state waits for P.
    s.k[at.k.slot].zero_rows_from(rows);
    ptx::fence_proxy_async();
  }
  // SYNC k_ring.empty, q_ring.empty: the scores warpgroup has read the tiles
  at.k.release(s.k_ring);
  at.q.release(s.q_ring);
  at.k.next();
  at.q.next();
  decay_scores<typename C::Io>(packed, acc, warp, s.gates[at.gate.slot].G, p.scale);
  // SYNC gate_ring.empty: G has been read
  at.gate.release(s.gate_ring);
  at.gate.next();
}

/// P to its place.
template <class C>
__device__ __forceinline__ void put_scores(SharedMemoryPlan<C>& s, ScoreCursors<C>& at, int warp,
                                           const PackedScores& packed) {
  // SYNC p_ring.empty: the state warpgroups are done with the slot's previous P
  at.p.acquire(s.p_ring);
  const tile::BlockTile scores(s.P[at.p.slot].bytes);
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (block > warp) break;
    ptx::stmatrix_x4(scores.block(warp, block), packed[block]);
  }
  ptx::fence_proxy_async();
  // SYNC p_ring.full: P is written, and the tail of k is zero
  at.p.commit(s.p_ring);
  at.p.next();
}

/// Scores warpgroup: P of all chunks that `next` deals, item by item. The product of the next chunk
/// runs while P of one goes to its place.
template <class C, class Next>
__device__ __forceinline__ void score_items(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            ScoreCursors<C>& at, Next next) {
  // The compiler is to know that it is the same in all lanes.
  const int warp = __shfl_sync(~0u, tile::warp_of_group(), 0);
  tile::Accumulator<64> acc;
  PackedScores packed;
  for (WorkItem item = next(); item.valid(); item = next()) {
    const int chunks = item.chunks();
    if (chunks == 0) continue;
    issue_scores<C>(s, at, acc);
    for (int c = 1; c < chunks; ++c) {
      take_scores<C>(p, s, at, warp, acc, packed, C::kChunk);
      issue_scores<C>(s, at, acc);
      put_scores<C>(s, at, warp, packed);
    }
    take_scores<C>(p, s, at, warp, acc, packed, item.rows(chunks - 1));
    put_scores<C>(s, at, warp, packed);
  }
}

/// Scores warpgroup.
template <class C>
__device__ __forceinline__ void scores_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  device::WorkReader work(s.work_ring, s.work);
  ScoreCursors<C> at;
  score_items<C>(p, s, at, [&] { return work.next(); });
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_SCORES_CUH_
