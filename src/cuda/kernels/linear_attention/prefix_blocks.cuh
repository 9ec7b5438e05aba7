// The compute warpgroups of prefix.cuh: outputs of 64 rows each, and S^T of 64 columns of V each.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_

#include "cuda/kernels/linear_attention/prefix_plan.cuh"
#include "cuda/kernels/linear_attention/state.cuh"
#include "cuda/ptx/wgmma_shared_shapes.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::linear_attention {

/// A compute warpgroup's places.
struct PrefixCursors {
  tile::RingCursor<1> block;
  tile::RingCursor<kPrefixStages> tile;
  OutputPlace place;

  __device__ __forceinline__ explicit PrefixCursors(int group) : place(group) {}
};

/// This thread's first row of a result.
__device__ __forceinline__ int result_row() {
  return static_cast<int>((threadIdx.x & 127u) >> 5) * 16 +
         static_cast<int>((threadIdx.x & 31u) >> 2);
}

/// Decayed scores of the rows of chunk `to` with the columns of chunk `from`, as a left operand.
/// NUM: sums of gates go no further than a chunk: between chunks e^(G_i + (G_C - G_j)).
template <class C>
__device__ __forceinline__ void decay_block(uint32_t (&P)[16], const float (&x)[32],
                                            const PrefixMemory<C>& s, int to, int from,
                                            float scale) {
  const int row = result_row(), column0 = static_cast<int>(threadIdx.x & 3u) * 2;
  const float* const G = s.gates[from].G;
  const float between = to == from ? 0.0f : G[63];
  const float g_row[2] = {s.gates[to].G[row], s.gates[to].G[row + 8]};
  const int below = to == from ? 0 : 64;
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int column = 8 * t + column0;
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int difference = below + row + 8 * i - column;
      const float first = tile::exp2_fast(g_row[i] + (between - g.x)) * scale * x[4 * t + 2 * i],
                  second =
                      tile::exp2_fast(g_row[i] + (between - g.y)) * scale * x[4 * t + 2 * i + 1];
      // WHY a choice: above the diagonal the exponential may be infinite.
      P[2 * t + i] = tile::Packed<typename C::Io>::pack(difference >= 0 ? first : 0.0f,
                                                        difference >= 1 ? second : 0.0f);
    }
  }
}

/// o += P V of 64 tokens.
template <class C>
__device__ __forceinline__ void issue_values(float (&o)[C::kV / 2], const uint32_t (&P)[16],
                                             const uint8_t* tile) {
  typename C::Io io{};
  const uint64_t v = tile::mn_major(ptx::shared_address(tile), C::kHalfTileBytes);
  constexpr uint32_t kStep = 16 * tile::kRowBytes;
  ptx::wgmma_rs_n128_mn<0, 0>(io, o, P, v, 1);
  ptx::wgmma_rs_n128_mn<0, 4>(io, o, P, tile::advance(v, kStep), 1);
  ptx::wgmma_rs_n128_mn<0, 8>(io, o, P, tile::advance(v, 2 * kStep), 1);
  ptx::wgmma_rs_n128_mn<0, 12>(io, o, P, tile::advance(v, 3 * kStep), 1);
  ptx::wgmma_commit();
}

/// o = what the block's own tokens give to the rows of chunk `group`.
template <class C>
__device__ __forceinline__ void mix_block(const PrefillParams& p, PrefixMemory<C>& s, int group,
                                          float (&o)[C::kV / 2]) {
#pragma unroll
  for (float& x : o) x = 0.0f;
#pragma unroll 1
  for (int from = group; from >= 0; --from) {
    float scores[32];
    uint32_t P[16];
    ptx::wgmma_fence();
    tile::issue_product<C>(scores, s.q[group], s.k[from]);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::pin(scores);
    decay_block<C>(P, scores, s, group, from, p.scale);
    ptx::pin(P);
    ptx::wgmma_fence();
    issue_values<C>(o, P, s.v[from]);
    ptx::wgmma_wait<0>();
    ptx::pin(o);
    ptx::pin(P);
  }
}

/// S^T += V^T diag(write) K of `tiles` chunks; what the state before them is multiplied by.
template <class C>
__device__ __forceinline__ float sum_tiles(PrefixMemory<C>& s, PrefixCursors& at, int tiles,
                                           float (&S)[C::kK / 2]) {
  uint32_t r[16], w[16];
  float kept = 1.0f;
#pragma unroll 1
  for (; tiles > 0; --tiles) {
    // SYNC ring.full: the compute warpgroups wait for k, v and weights
    at.tile.wait(s.ring);
    auto& stage = s.stage[at.tile.stage];
    const PrefixWeights& weights = s.weights[at.tile.stage];
    load_values(r, ptx::shared_address(stage.v) + at.place.v_offset, C::kChunk);
    scale_values<C>(w, r, weights.write);
    kept = weights.kept;
    ptx::pin(w);
    ptx::wgmma_fence();
    tile::issue_update<C>(S, w, tile::mn_major(ptx::shared_address(stage.k), C::kHalfTileBytes));
    ptx::wgmma_wait<0>();
    ptx::pin(S);
    ptx::pin(w);
    // SYNC ring.empty: this warp's reads of the tiles are over
    at.tile.release(s.ring);
    at.tile.next();
  }
  return kept;
}

/// S^T *= factor.
template <class C>
__device__ __forceinline__ void scale_state(float (&S)[C::kK / 2], float factor) {
#pragma unroll
  for (float& x : S) x *= factor;
}

/// Adds what is left of the zeros before the first token. NUM: nothing, but decays that are no
/// numbers leave no number of them.
template <class C>
__device__ __forceinline__ void add_start(float (&S)[C::kK / 2], float kept) {
  const float start = kept != kept ? kept : 0.0f;
#pragma unroll
  for (float& x : S) x += start;
}

/// S of this warpgroup's columns, rounded, to its tile.
template <class C>
__device__ __forceinline__ void put_state(PrefixMemory<C>& s, int group,
                                          const float (&S)[C::kK / 2]) {
  using Pack = tile::Packed<typename C::Io>;
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
  const tile::BlockTile blocks(s.k[0] + group * C::kKTileBytes);
#pragma unroll
  for (int b = 0; b < C::kK / 16; ++b) {
    const float* const x = S + 8 * b;
    const uint32_t packed[4] = {Pack::pack(x[0], x[1]), Pack::pack(x[4], x[5]),
                                Pack::pack(x[2], x[3]), Pack::pack(x[6], x[7])};
    ptx::stmatrix_x4_trans(blocks.block(b, warp), packed);
  }
}

/// o += diag(e^G scale) Q S for the rows of chunk `group`.
template <class C>
__device__ __forceinline__ void recall_block(PrefixMemory<C>& s, int group, float (&o)[C::kV / 2]) {
  float out[C::kV / 2];
  const uint64_t q = tile::k_major(ptx::shared_address(s.q[group]));
  const uint64_t state = tile::mn_major(ptx::shared_address(s.k[0]), C::kKTileBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t step = 0; step < C::kK / 16; ++step) {
    const uint32_t at = step / 4 * C::kHalfTileBytes + step % 4 * 32;
    ptx::wgmma_ss_n128_mn<0>(typename C::Io{}, out, tile::advance(q, at),
                             tile::advance(state, step * 16 * tile::kRowBytes), step != 0);
  }
  ptx::wgmma_commit();
  const int row = result_row();
  const float before = group == 0 ? 1.0f : s.gates[0].decay;
  const float factor[2] = {s.gates[group].query[row] * before,
                           s.gates[group].query[row + 8] * before};
  ptx::wgmma_wait<0>();
  ptx::pin(out);
#pragma unroll
  for (int i = 0; i < C::kV / 2; ++i) o[i] = fmaf(factor[i / 2 % 2], out[i], o[i]);
}

/// o from registers to memory through tile v of chunk `group`; the block's tiles go back.
template <class C>
__device__ __forceinline__ void send_block(const PrefillParams& p, PrefixMemory<C>& s,
                                           const PrefixPart& part, int begin, int group,
                                           const PrefixCursors& at, const float (&o)[C::kV / 2]) {
  using Pack = tile::Packed<typename C::Io>;
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
#pragma unroll
  for (int half = 0; half < C::kV / 64; ++half) {
    const tile::BlockTile blocks(s.v[group] + half * C::kHalfTileBytes);
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        packed[i] = Pack::pack(o[half * 32 + b * 8 + 2 * i], o[half * 32 + b * 8 + 2 * i + 1]);
      }
      ptx::stmatrix_x4(blocks.block(warp, b), packed);
    }
  }
  ptx::fence_proxy_async();
  // SYNC kOutput: the warpgroup's part of o is written, and it has read the block's tiles
  ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kOutput) + group, 128);
  if ((threadIdx.x & 127u) != 0) return;
#pragma unroll
  for (int half = 0; half < C::kV / 64; ++half) {
    ptx::tma_store(&p.o, s.v[group] + half * C::kHalfTileBytes,
                   {0, (begin + group) * C::kChunk, part.item.column / 64 + half, part.item.head,
                    part.item.batch});
  }
  ptx::bulk_commit();
  ptx::bulk_wait_read();
  // SYNC block.empty: the loader may have the block's tiles, and the gate warp its gates
  ptx::mbarrier_arrive(&s.block.empty[at.block.stage]);
}

/// Compute warpgroup `group`.
template <class C>
__device__ __forceinline__ void compute_blocks(const PrefillParams& p, PrefixMemory<C>& s,
                                               int group) {
  const PrefixPart part = prefix_part<C>(p);
  PrefixCursors at(group);
  float S[C::kK / 2], o[C::kV / 2];
#pragma unroll
  for (float& x : S) x = 0.0f;
  // SYNC kReady: the mbarriers are ready
  ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kReady), 288);
  float keep = 1.0f;
#pragma unroll 1
  for (int begin = part.first; begin < part.stop(); begin += kBlockChunks) {
    const bool is_block = begin < part.end;
    if (is_block) {
      // SYNC block.full: the compute warpgroups wait for the block's tiles and gates
      at.block.wait(s.block);
      mix_block<C>(p, s, group, o);
    }
    scale_state<C>(S, keep);
    const float kept = sum_tiles<C>(s, at, begin - part.low(begin), S);
    if (begin == part.first) add_start<C>(S, kept);
    if (!is_block) break;
    keep = s.gates[0].decay * s.gates[1].decay;
    // SYNC kState: both warpgroups are done with k and v of the block, which make room
    ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kState), 256);
    if (begin > 0) {
      put_state<C>(s, group, S);
      ptx::fence_proxy_async();
      // SYNC kState: the state is written
      ptx::named_barrier_sync(static_cast<uint32_t>(PrefixBarrier::kState), 256);
      recall_block<C>(s, group, o);
    }
    send_block<C>(p, s, part, begin, group, at, o);
    at.block.next();
  }
  if (part.last) device::store_final(p, part.item, group, S);
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_PREFIX_BLOCKS_CUH_
