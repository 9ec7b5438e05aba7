// The aux warpgroup: Tmat, P and the row factors of every chunk, ahead of the state warpgroups.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/work.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace sluice::cuda::chunk_forward {

/// acc = X Y^T for two [64 tokens][128] tiles.
template <class C>
__device__ __forceinline__ void issue_product(float (&acc)[32], const uint8_t* x,
                                              const uint8_t* y) {
  const uint64_t dx = tile::k_major(ptx::shared_address(x));
  const uint64_t dy = tile::k_major(ptx::shared_address(y));
#pragma unroll
  for (uint32_t step = 0; step < 8; ++step) {
    const uint32_t at = (step / 4) * C::kHalfTileBytes + (step % 4) * 32;
    ptx::wgmma_ss_n64<0>(typename C::Io{}, acc, tile::advance(dx, at), tile::advance(dy, at),
                         step != 0);
  }
}

/// Inverse norms of 64 rows of a tile, two threads a row: sum over one half each. The result is
/// valid in both threads of the pair (2 row, 2 row + 1).
template <class C>
__device__ __forceinline__ float inverse_norm(const uint8_t* tile, float eps) {
  const uint32_t thread = threadIdx.x & 127u;
  const uint32_t row = thread >> 1;
  const uint8_t* half = tile + (thread & 1u) * C::kHalfTileBytes;
  float sum = 0;
#pragma unroll 2
  for (uint32_t piece = 0; piece < 8; ++piece) {
    const uint4 x = *reinterpret_cast<const uint4*>(half + tile::swizzled_piece(row, piece));
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t word : words) {
      const float a = tile::Packed<typename C::Io>::first(word);
      const float b = tile::Packed<typename C::Io>::second(word);
      sum += a * a + b * b;
    }
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  return rsqrtf(sum + eps);
}

/// Zeroes rows [rows, 64) of a k tile: the state update multiplies them, and 0 * NaN is NaN.
template <class C>
__device__ __forceinline__ void zero_tail(uint8_t* tile, int rows) {
  for (uint32_t i = threadIdx.x & 127u; i < static_cast<uint32_t>(64 - rows) * 16; i += 128) {
    const uint32_t row = static_cast<uint32_t>(rows) + (i >> 4);
    *reinterpret_cast<uint4*>(tile + ((i >> 3) & 1u) * C::kHalfTileBytes + row * tile::kRowBytes +
                              (i & 7u) * 16) = make_uint4(0, 0, 0, 0);
  }
}

/// Gamma for one thread's two rows (16 warp + lane / 4, + 8) of a product, as far as A and P share
/// it. Below the diagonal, Gamma_ij = e^{G_i - G_e} e^{G_e - G_j} with e the last token of the
/// block's columns: j <= e < i, so both exponents are <= 0 and neither factor can overflow.
struct Decay {
  float G[2];         ///< G_i
  float below[3][2];  ///< e^{G_i - G_e} of the row, by block
};

__device__ __forceinline__ void compute_decay(Decay& d, int warp, const GateStage& gate) {
  const int row = warp * 16 + static_cast<int>((threadIdx.x & 31u) >> 2);
  d.G[0] = gate.G[row];
  d.G[1] = gate.G[row + 8];
#pragma unroll
  for (int b = 0; b < 3; ++b) {
    const float end = gate.G[b * 16 + 15];
    d.below[b][0] = tile::exp2_fast(d.G[0] - end);
    d.below[b][1] = tile::exp2_fast(d.G[1] - end);
  }
}

/// Zeroes rows and columns at or past `rows` of a raw product: they may come from another sequence.
__device__ __forceinline__ void mask_tail(float (&x)[32], int rows) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int row = static_cast<int>((threadIdx.x >> 5) & 3u) * 16 + (lane >> 2);
#pragma unroll
  for (int at = 0; at < 32; ++at) {
    const int i = row + ((at >> 1) & 1) * 8, j = (at >> 2) * 8 + (lane & 3) * 2 + (at & 1);
    x[at] = i < rows && j < rows ? x[at] : 0.0f;
  }
}

/// Block (warp, kBlock), kBlock < warp, of a product times row factors, Gamma and key norms.
template <bool kNorm, int kBlock>
__device__ __forceinline__ void decay_below(float (&out)[8], const float (&x)[32],
                                            const float (&factor)[2], const Decay& d,
                                            const GateStage& gate, const float* key_norms) {
  const float row[2] = {factor[0] * d.below[kBlock][0], factor[1] * d.below[kBlock][1]};
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int column = kBlock * 16 + t * 8 + static_cast<int>(threadIdx.x & 3u) * 2;
    float2 c = *reinterpret_cast<const float2*>(&gate.column[column]);
    if constexpr (kNorm) {
      const float2 norm = *reinterpret_cast<const float2*>(&key_norms[column]);
      c = make_float2(c.x * norm.x, c.y * norm.y);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = t * 4 + i * 2;
      out[at] = row[i] * c.x * x[kBlock * 8 + at];
      out[at + 1] = row[i] * c.y * x[kBlock * 8 + at + 1];
    }
  }
}

/// The diagonal block of a product times row factors, Gamma and key norms. Column j of row i is
/// kept if j < i + kInclusive.
template <bool kNorm, int kInclusive>
__device__ __forceinline__ void decay_diagonal(float (&out)[8], const float (&x)[32], int warp,
                                               const float (&factor)[2], const Decay& d,
                                               const GateStage& gate, const float* key_norms) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int columns = (lane >> 2) + kInclusive - 2 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int column = warp * 16 + t * 8 + (lane & 3) * 2;
    const float2 G = *reinterpret_cast<const float2*>(&gate.G[column]);
    float2 norm = make_float2(1.0f, 1.0f);
    if constexpr (kNorm) norm = *reinterpret_cast<const float2*>(&key_norms[column]);
#pragma unroll
    for (int i = t; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = t * 4 + i * 2 + e;
        const float raw =
            warp < 2 ? (warp == 0 ? x[at] : x[8 + at]) : (warp == 2 ? x[16 + at] : x[24 + at]);
        const float gamma = tile::exp2_fast(d.G[i] - (e ? G.y : G.x)) * (e ? norm.y : norm.x);
        out[at] = i > t || e < columns ? factor[i] * gamma * raw : 0.0f;
      }
    }
  }
  out[4] = out[5] = 0.0f;  // the 8x8 block above the diagonal
}

/// A block as packed 16-bit numbers.
template <class T>
__device__ __forceinline__ void pack_block(uint32_t (&out)[4], const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = tile::Packed<T>::pack(x[2 * i], x[2 * i + 1]);
}

/// Index of this warp in the aux warpgroup, known to the compiler to be the same in all lanes.
__device__ __forceinline__ int aux_warp() {
  return __shfl_sync(~0u, static_cast<int>((threadIdx.x >> 5) & 3u), 0);
}

/// Block (warp, kBlock) of a product, below the diagonal, to `to` in T.
template <class T, bool kNorm, int kBlock>
__device__ __forceinline__ void store_below(int warp, const float (&x)[32],
                                            const float (&factor)[2], const Decay& d,
                                            const GateStage& gate, const float* key_norms,
                                            const BlockTile& to) {
  if (kBlock >= warp) return;
  float decayed[8];
  uint32_t packed[4];
  decay_below<kNorm, kBlock>(decayed, x, factor, d, gate, key_norms);
  pack_block<T>(packed, decayed);
  ptx::stmatrix_x4(to.block(warp, kBlock), packed);
}

/// This warp's rows of A: to `blocks` in fp16, but the 8x8 blocks on the diagonal to `diagonal` in
/// float32, transposed.
template <class C>
__device__ __forceinline__ void store_a(int warp, const float (&kk)[32], const float (&factor)[2],
                                        const Decay& d, const GateStage& gate,
                                        const float* key_norms, float (&diagonal)[16][20],
                                        const BlockTile& blocks) {
  store_below<__half, C::kL2Norm, 0>(warp, kk, factor, d, gate, key_norms, blocks);
  store_below<__half, C::kL2Norm, 1>(warp, kk, factor, d, gate, key_norms, blocks);
  store_below<__half, C::kL2Norm, 2>(warp, kk, factor, d, gate, key_norms, blocks);
  const int row = static_cast<int>(threadIdx.x & 31u) >> 2;
  const int column = 2 * static_cast<int>(threadIdx.x & 3u);
  float a[8];
  decay_diagonal<C::kL2Norm, 0>(a, kk, warp, factor, d, gate, key_norms);
  diagonal[column][row] = a[0];
  diagonal[column + 1][row] = a[1];
  diagonal[8 + column][8 + row] = a[6];
  diagonal[8 + column + 1][8 + row] = a[7];
  const uint32_t at =
      blocks.base + tile::swizzled_element(static_cast<uint32_t>(warp * 16 + 8 + row),
                                           static_cast<uint32_t>(warp * 16 + column));
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(tile::Packed<__half>::pack(a[2], a[3]))
               : "memory");
}

/// This warp's rows of P.
template <class C>
__device__ __forceinline__ void store_p(int warp, const float (&qk)[32], const float (&factor)[2],
                                        const Decay& d, const GateStage& gate,
                                        const float* key_norms, const BlockTile& p_tile) {
  using Io = typename C::Io;
  store_below<Io, C::kL2Norm, 0>(warp, qk, factor, d, gate, key_norms, p_tile);
  store_below<Io, C::kL2Norm, 1>(warp, qk, factor, d, gate, key_norms, p_tile);
  store_below<Io, C::kL2Norm, 2>(warp, qk, factor, d, gate, key_norms, p_tile);
  float p[8];
  uint32_t packed[4];
  decay_diagonal<C::kL2Norm, 1>(p, qk, warp, factor, d, gate, key_norms);
  pack_block<Io>(packed, p);
  ptx::stmatrix_x4(p_tile.block(warp, warp), packed);
}

/// The factors that the state warpgroups apply to rows and columns; threads 0..63 own a token each.
template <class C>
__device__ __forceinline__ void store_factors(const ChunkForwardParams& p, const GateStage& gate,
                                              const float (&norms)[2][64], MixStage& mix) {
  const int t = static_cast<int>(threadIdx.x & 127u);
  if (t >= 64) return;
  const float G = gate.G[t], last = gate.G[63];
  const float rk = C::kL2Norm ? norms[0][t] : 1.0f;
  const float rq = C::kL2Norm ? norms[1][t] : 1.0f;
  const float decay = tile::exp2_fast(G);
  mix.recall[t] = decay * rk;
  mix.query[t] = decay * rq * p.scale;
  mix.write[t] = tile::exp2_fast(last - G) * rk;
  if (t == 63) mix.decay = decay;
}

/// One role's places in all rings of the aux warpgroup.
template <class C>
struct PrepareCursors {
  tile::RingCursor<C::kKStages> k;
  tile::RingCursor<C::kQStages> q;
  tile::RingCursor<C::kMixStages> mix;
  tile::RingCursor<C::kGateStages> gate;
  tile::RingCursor<2> blocks;
};

/// Issues X Kc^T of the chunk at the cursors, X its k or q tile.
template <class C>
__device__ __forceinline__ void issue_with_k(SharedMemoryPlan<C>& s, const PrepareCursors<C>& at,
                                             float (&acc)[32], const uint8_t* x) {
  ptx::wgmma_fence();
  issue_product<C>(acc, x, s.k[at.k.stage]);
  ptx::wgmma_commit();
}

/// Issues KK^T of the chunk at the cursors.
template <class C>
__device__ __forceinline__ void issue_kk(SharedMemoryPlan<C>& s, const PrepareCursors<C>& at,
                                         float (&kk)[32]) {
  // SYNC k_ring.full: the aux warpgroup waits for k
  at.k.wait(s.k_ring);
  issue_with_k<C>(s, at, kk, s.k[at.k.stage]);
}

/// Inverse norms of the chunk's keys and queries.
template <class C>
__device__ __forceinline__ void store_norms(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            const PrepareCursors<C>& at) {
  const float rk = inverse_norm<C>(s.k[at.k.stage], p.l2norm_eps);
  const float rq = inverse_norm<C>(s.q[at.q.stage], p.l2norm_eps);
  s.norms[at.blocks.stage][threadIdx.x & 1u][(threadIdx.x & 127u) >> 1] =
      (threadIdx.x & 1u) ? rq : rk;
  // SYNC kNorms: aux warps wait for all rows' norms
  ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kNorms), 128);
}

/// First part of a chunk: A and its inverted 32x32 diagonal blocks. On entry KK^T is in flight, on
/// return QK^T.
template <class C>
__device__ __forceinline__ void start_chunk(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            PrepareCursors<C>& at, float (&kk)[32], float (&qk)[32],
                                            Decay& d, int rows) {
  using Io = typename C::Io;
  const int warp = aux_warp();
  const int row = warp * 16 + static_cast<int>((threadIdx.x & 31u) >> 2);
  float(&norms)[2][64] = s.norms[at.blocks.stage];
  // SYNC q_ring.full: the aux warpgroup waits for q
  at.q.wait(s.q_ring);
  if constexpr (C::kL2Norm) store_norms<C>(p, s, at);
  ptx::wgmma_wait<0>();
  ptx::pin(kk);
  issue_with_k<C>(s, at, qk, s.q[at.q.stage]);
  // SYNC gate_ring.full: the aux warpgroup waits for G and beta
  at.gate.wait(s.gate_ring);
  // SYNC mix_ring.empty: the state warpgroups are done with the stage's previous chunk
  at.mix.acquire(s.mix_ring);
  // SYNC block_ring.empty: the finish warps are done with the stage's previous chunk
  at.blocks.acquire(s.block_ring);
  const GateStage& gate = s.gates[at.gate.stage];
  MixStage& mix = s.mix[at.mix.stage];
  store_factors<C>(p, gate, norms, mix);
  const float* key_norms = C::kL2Norm ? norms[0] : nullptr;
  compute_decay(d, warp, gate);
  const float factor[2] = {gate.beta[row] * (C::kL2Norm ? norms[0][row] : 1.0f),
                           gate.beta[row + 8] * (C::kL2Norm ? norms[0][row + 8] : 1.0f)};
  if (rows < C::kChunk) mask_tail(kk, rows);
  const BlockTile blocks(s.blocks[at.blocks.stage]);
  store_a<C>(warp, kk, factor, d, gate, key_norms, s.diagonal[warp], blocks);
  __syncwarp();
  const BlockTile tmat(mix.Tmat);
  substitute_diagonal<Io>(s.diagonal[warp], blocks, tmat, warp, gate.beta);
  __syncwarp();
  merge_diagonal<Io>(blocks, tmat, warp, gate.beta);
  // WHY warps 0 and 1: they have the fewest blocks of A and P.
  if (warp == 0) {
    // SYNC kPairLow: warp 0 waits for warp 1's rows of A and its inverted diagonal block
    ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kPairLow), 64);
    merge_pair<Io>(blocks, tmat, 1, gate.beta);
  } else if (warp == 1) {
    // SYNC kPairLow: warp 1's rows of A and its inverted diagonal block are written
    ptx::named_barrier_arrive(static_cast<uint32_t>(NamedBarrier::kPairLow), 64);
    // SYNC kPairHigh: warp 1 waits for those of warps 2 and 3
    ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kPairHigh), 96);
    merge_pair<Io>(blocks, tmat, 3, gate.beta);
  } else {
    // SYNC kPairHigh: the rows and blocks of warps 2 and 3 are written
    ptx::named_barrier_arrive(static_cast<uint32_t>(NamedBarrier::kPairHigh), 96);
  }
  // SYNC block_ring.full: this warp's part of A and of its 32x32 inverses is written
  at.blocks.commit(s.block_ring);
}

/// Waits for QK^T and gives k and q back.
template <class C>
__device__ __forceinline__ void finish_queries(SharedMemoryPlan<C>& s, PrepareCursors<C>& at,
                                               float (&qk)[32], int rows) {
  ptx::wgmma_wait<0>();
  ptx::pin(qk);
  if (rows < C::kChunk) {
    // WHY here: the aux warpgroup's own reads of the tile are over.
    zero_tail<C>(s.k[at.k.stage], rows);
    ptx::fence_proxy_async();
    mask_tail(qk, rows);
  }
  // SYNC k_ring.empty, q_ring.empty: the aux warpgroup has read the tiles
  at.k.release(s.k_ring);
  at.q.release(s.q_ring);
  at.k.next();
  at.q.next();
}

/// Second part: P. The rest of Tmat is left to the finish warps.
template <class C>
__device__ __forceinline__ void mix_queries(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                            PrepareCursors<C>& at, const float (&qk)[32],
                                            const Decay& d) {
  const int warp = aux_warp(), row = warp * 16 + static_cast<int>((threadIdx.x & 31u) >> 2);
  const float(&norms)[2][64] = s.norms[at.blocks.stage];
  const float* key_norms = C::kL2Norm ? norms[0] : nullptr;
  const float factor[2] = {p.scale * (C::kL2Norm ? norms[1][row] : 1.0f),
                           p.scale * (C::kL2Norm ? norms[1][row + 8] : 1.0f)};
  store_p<C>(warp, qk, factor, d, s.gates[at.gate.stage], key_norms,
             BlockTile(s.mix[at.mix.stage].P));
  // SYNC gate_ring.empty: G and beta have been read
  at.gate.release(s.gate_ring);
  ptx::fence_proxy_async();
  // SYNC mix_ring.full: P, factors, Tmat's diagonal blocks and the zeroed tail of k are written
  at.mix.commit(s.mix_ring);
  at.gate.next();
  at.mix.next();
  at.blocks.next();
}

/// Aux warpgroup. QK^T runs under the inverse of the diagonal blocks, the next chunk's KK^T under
/// P.
template <class C>
__device__ __forceinline__ void prepare_role(const ChunkForwardParams& p, SharedMemoryPlan<C>& s) {
  WorkReader<C> work(s);
  PrepareCursors<C> at;
  float kk[32], qk[32];
  Decay d;
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const int chunks = item.chunks();
    if (chunks == 0) continue;
    issue_kk<C>(s, at, kk);
    for (int c = 1; c < chunks; ++c) {
      start_chunk<C>(p, s, at, kk, qk, d, C::kChunk);
      finish_queries<C>(s, at, qk, C::kChunk);
      issue_kk<C>(s, at, kk);
      mix_queries<C>(p, s, at, qk, d);
    }
    const int rows = item.rows(chunks - 1);
    start_chunk<C>(p, s, at, kk, qk, d, rows);
    finish_queries<C>(s, at, qk, rows);
    mix_queries<C>(p, s, at, qk, d);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_
