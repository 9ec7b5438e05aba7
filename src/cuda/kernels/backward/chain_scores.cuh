// Makes of a chunk, for the chain of gradients, what does not depend on the state: P, what d_o has of
// dN, d_o with its factors. chain_tiles.cuh has the rest.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_SCORES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_SCORES_CUH_

#include "cuda/kernels/backward/chain_items.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"

namespace sluice::cuda::backward {

using tile::Accumulator, tile::Operand;

/// Named barriers; 0 is __syncthreads, 1 and 2 are the states'.
inline constexpr uint32_t kScoreBarrier = 3;

/// Factors of a lane's columns, asked for before they are wanted.
struct ColumnFactors {
  float2 x[8];
  __device__ __forceinline__ explicit ColumnFactors(const float* factors) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[j] = *reinterpret_cast<const float2*>(&factors[8 * j + tile::lane_column()]);
    }
  }
};

/// a with a factor a column, rounded.
template <class Io>
__device__ __forceinline__ void scale_to(Operand<Io, 64>& out, const Accumulator<64>& a,
                                         const ColumnFactors& f) {
#pragma unroll
  for (int at = 0; at < 16; ++at) {
    const float2 factor = f.x[at / 2];
    out.x[at] = tile::Packed<Io>::pack(factor.x * a.x[2 * at], factor.y * a.x[2 * at + 1]);
  }
}

/// P of a chunk to its tile.
template <class C>
__device__ __forceinline__ void make_scores(float scale, ChainShared<C>& s, int slot, int rows,
                                            SquareTile<typename C::Io>& P) {
  Accumulator<64> x;
  ptx::wgmma_fence();
  tile::issue_product(x, s.slots[slot].q, s.slots[slot].k);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  tile::pin(x);
  const float* const G = s.factors[slot].G;
  const float own[2] = {G[tile::group_row()], G[tile::group_row() + 8]};
#pragma unroll
  for (int at = 0; at < x.kSize; ++at) {
    const int i = x.row(at), j = x.column(at);
    // WHY a choice: above the diagonal the exponential may be infinite, and rows past the end
    // are another sequence's.
    const float score = scale * decay(own[at / 2 % 2] - G[j]) * x.x[at];
    x.x[at] = j <= i && i < rows ? score : 0.0f;
  }
  // SYNC kScoreBarrier, of the chunk before: all warps are done with the P before the last
  tile::put_rows(P, x);
  ptx::fence_proxy_async();
  // SYNC kScoreBarrier: P is written
  ptx::named_barrier_sync(kScoreBarrier, 128);
}

/// Warpgroup of scores: of every chunk P, what d_o has of dN^T, and d_o with scale exp(G) in its
/// place. PERF all of this leaves the state's warpgroups but two products and what goes with them.
template <class C>
__device__ __forceinline__ void score_role(const ChainParams& p, ChainShared<C>& s) {
  using Io = typename C::Io;
  tile::RingCursor<C::kSlots> cursor;
  tile::RingCursor<1> scores;
  const uint32_t offset = tile::turned_piece();
  int turn = 0;
  for (int number = first_item(p); number < p.items; number += p.ctas) {
    const ChainItem item = chain_item<C>(p, number);
    for (int step = 0; step < item.chunks; ++step, cursor.next(), scores.next(), turn ^= 1) {
      // SYNC ring.full: q, k, d_o and factors are there
      cursor.wait(s.ring);
      const int rows = item.rows(item.template chunk<C>(step));
      make_scores(p.all.stage.scale, s, cursor.slot, rows, s.P[turn]);
#pragma unroll
      for (int group = 0; group < C::kGroups; ++group) {
        const uint32_t tile = s.slots[cursor.slot].rows[group].address() + offset;
        Operand<Io, 64> d_o;
        Accumulator<64> a;
        d_o.load_turned(tile);
        if (rows < kTokens) d_o.mask_columns_from(rows);
        a.clear();
        tile::pin(d_o);
        ptx::wgmma_fence();
        tile::issue_update(a, d_o, s.P[turn]);
        ptx::wgmma_wait<0>();
        tile::pin(a);
        tile::pin(d_o);
        const ColumnFactors query(s.factors[cursor.slot].query);
#pragma unroll
        for (int at = 0; at < 16; ++at) {
          using Pack = tile::Packed<Io>;
          const float2 f = query.x[at / 2];
          d_o.x[at] = Pack::pack(f.x * Pack::first(d_o.x[at]), f.y * Pack::second(d_o.x[at]));
        }
        d_o.store_turned(tile);
        if constexpr (C::kScales) a.scale(s.factors[cursor.slot].gain);
        // SYNC score_ring.empty: the states have read the numbers of the chunk before. PERF as late
        // as can be: all the rest of a chunk is made while the states have the one before.
        if (group == 0) scores.acquire(s.score_ring);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          s.inner[group][j][tile::thread_of_group()] =
              make_float4(a.x[4 * j], a.x[4 * j + 1], a.x[4 * j + 2], a.x[4 * j + 3]);
        }
      }
      ptx::fence_proxy_async();
      // SYNC score_ring.full: this warp's numbers and columns of d_o are written
      scores.commit(s.score_ring);
      // SYNC ring.empty: this warp's reads of the slot are over
      cursor.release(s.ring);
    }
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_SCORES_CUH_
