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
#pragma unroll
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

/// What one thread of the aux warpgroup keeps about its two rows (16 warp + lane / 4, + 8).
struct RowFactors {
  float G[2], a[2], p[2];          ///< G_i; beta_i rk_i; scale rq_i
  int a_columns[2], p_columns[2];  ///< columns below these are kept, relative to 2 (lane % 4)
};

template <class C>
__device__ __forceinline__ RowFactors row_factors(const ChunkForwardParams& p,
                                                  const GateStage& gate,
                                                  const float (&norms)[2][64], int rows) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  RowFactors f;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = static_cast<int>((threadIdx.x >> 5) & 3u) * 16 + (lane >> 2) + 8 * i;
    f.G[i] = gate.G[row];
    f.a[i] = gate.beta[row] * (p.l2norm ? norms[0][row] : 1.0f);
    f.p[i] = p.scale * (p.l2norm ? norms[1][row] : 1.0f);
    f.a_columns[i] = (row < rows ? row : 0) - 2 * (lane & 3);
    f.p_columns[i] = (row < rows ? row + 1 : 0) - 2 * (lane & 3);
  }
  return f;
}

/// Block (warp, kBlock) of A and of P from the raw products: decay, beta, norms, causal mask. A
/// goes to `blocks` in fp16, or, on the diagonal, transposed to `diagonal` in float32; P to
/// `p_tile`.
template <class C, int kBlock>
__device__ __forceinline__ void apply_decay(const float (&kk)[32], const float (&qk)[32],
                                            const RowFactors& f, const float* G,
                                            const float* key_norms, float (&diagonal)[16][20],
                                            uint32_t blocks, uint32_t p_tile) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
  float a[8], p[8];
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int column = kBlock * 16 + t * 8;
    const float2 Gj = *reinterpret_cast<const float2*>(&G[column + 2 * (lane & 3)]);
    float2 norm = make_float2(1.0f, 1.0f);
    if (key_norms != nullptr) {
      norm = *reinterpret_cast<const float2*>(&key_norms[column + 2 * (lane & 3)]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = t * 4 + i * 2 + e;
        float gamma = tile::exp2_fast(f.G[i] - (e ? Gj.y : Gj.x));
        if (key_norms != nullptr) gamma *= e ? norm.y : norm.x;
        a[at] = column + e < f.a_columns[i] ? f.a[i] * gamma * kk[kBlock * 8 + at] : 0.0f;
        p[at] = column + e < f.p_columns[i] ? f.p[i] * gamma * qk[kBlock * 8 + at] : 0.0f;
      }
    }
  }
  uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed[i] = tile::Packed<typename C::Io>::pack(p[2 * i], p[2 * i + 1]);
  }
  ptx::stmatrix_x4(block_address(p_tile, warp, kBlock), packed);
  if (kBlock < warp) {
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = tile::Packed<__half>::pack(a[2 * i], a[2 * i + 1]);
    ptx::stmatrix_x4(block_address(blocks, warp, kBlock), packed);
  } else {
#pragma unroll
    for (int at = 0; at < 8; ++at) {
      diagonal[(at >> 2) * 8 + 2 * (lane & 3) + (at & 1)][((at >> 1) & 1) * 8 + (lane >> 2)] =
          a[at];
    }
  }
}

/// The factors that the state warpgroups apply to rows and columns; threads 0..63 own a token each.
template <class C>
__device__ __forceinline__ void store_factors(const ChunkForwardParams& p, const GateStage& gate,
                                              const float (&norms)[2][64], MixStage& mix) {
  const int t = static_cast<int>(threadIdx.x & 127u);
  if (t >= 64) return;
  const float G = gate.G[t], last = gate.G[63];
  const float rk = p.l2norm ? norms[0][t] : 1.0f;
  const float rq = p.l2norm ? norms[1][t] : 1.0f;
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
  uint32_t parity = 0;
};

/// Issues KK^T and QK^T of the chunk at the cursors.
template <class C>
__device__ __forceinline__ void issue_products(SharedMemoryPlan<C>& s, const PrepareCursors<C>& at,
                                               float (&kk)[32], float (&qk)[32]) {
  // SYNC k_ring.full, q_ring.full: the aux warpgroup waits for the chunk's tiles
  at.k.wait(s.k_ring);
  at.q.wait(s.q_ring);
  ptx::wgmma_fence();
  issue_product<C>(kk, s.k[at.k.stage], s.k[at.k.stage]);
  issue_product<C>(qk, s.q[at.q.stage], s.k[at.k.stage]);
  ptx::wgmma_commit();
}

/// Turns the products into A, P and factors, and gives k, q and the gates back.
template <class C>
__device__ __forceinline__ void finish_products(const ChunkForwardParams& p, SharedMemoryPlan<C>& s,
                                                PrepareCursors<C>& at, float (&kk)[32],
                                                float (&qk)[32], int rows) {
  float(&norms)[2][64] = s.norms[at.parity];
  if (p.l2norm) {
    const float rk = inverse_norm<C>(s.k[at.k.stage], p.l2norm_eps);
    const float rq = inverse_norm<C>(s.q[at.q.stage], p.l2norm_eps);
    norms[threadIdx.x & 1u][(threadIdx.x & 127u) >> 1] = (threadIdx.x & 1u) ? rq : rk;
    // SYNC kInverse: aux warps wait for all rows' norms
    ptx::named_barrier_sync(static_cast<uint32_t>(NamedBarrier::kInverse), 128);
  }
  // SYNC gate_ring.full: the aux warpgroup waits for G and beta
  at.gate.wait(s.gate_ring);
  // SYNC mix_ring.empty: the state warpgroups are done with the stage's previous chunk
  at.mix.acquire(s.mix_ring);
  GateStage& gate = s.gates[at.gate.stage];
  MixStage& mix = s.mix[at.mix.stage];
  store_factors<C>(p, gate, norms, mix);
  const RowFactors f = row_factors<C>(p, gate, norms, rows);
  const int warp = static_cast<int>((threadIdx.x >> 5) & 3u);
  const float* key_norms = p.l2norm ? norms[0] : nullptr;
  const uint32_t blocks = ptx::shared_address(s.blocks[at.parity]);
  const uint32_t p_tile = ptx::shared_address(mix.P);
  ptx::wgmma_wait<0>();
  ptx::pin(kk);
  ptx::pin(qk);
  if (rows < C::kChunk) {
    // WHY after the products: the same rows are masked there, and the aux warpgroup owns no earlier
    // point at which all its own reads of the tile are over.
    zero_tail<C>(s.k[at.k.stage], rows);
    ptx::fence_proxy_async();
  }
  // SYNC k_ring.empty, q_ring.empty: the aux warpgroup has read the tiles
  at.k.release(s.k_ring);
  at.q.release(s.q_ring);
  at.k.next();
  at.q.next();
  apply_decay<C, 0>(kk, qk, f, gate.G, key_norms, s.diagonal[warp], blocks, p_tile);
  if (warp >= 1) apply_decay<C, 1>(kk, qk, f, gate.G, key_norms, s.diagonal[warp], blocks, p_tile);
  if (warp >= 2) apply_decay<C, 2>(kk, qk, f, gate.G, key_norms, s.diagonal[warp], blocks, p_tile);
  if (warp >= 3) apply_decay<C, 3>(kk, qk, f, gate.G, key_norms, s.diagonal[warp], blocks, p_tile);
  __syncwarp();
}

/// Tmat from A; afterwards the chunk is ready for the state warpgroups.
template <class C>
__device__ __forceinline__ void finish_chunk(SharedMemoryPlan<C>& s, PrepareCursors<C>& at) {
  MixStage& mix = s.mix[at.mix.stage];
  solve_unit_lower<typename C::Io>(s.diagonal, ptx::shared_address(s.blocks[at.parity]),
                                   ptx::shared_address(mix.Tmat), s.gates[at.gate.stage].beta);
  // SYNC gate_ring.empty: G and beta have been read
  at.gate.release(s.gate_ring);
  ptx::fence_proxy_async();
  // SYNC mix_ring.full: Tmat, P, factors and the zeroed tail of k are written
  at.mix.commit(s.mix_ring);
  at.gate.next();
  at.mix.next();
  at.parity ^= 1u;
}

/// Aux warpgroup. The products of a chunk run under the inverse of the one before.
template <class C>
__device__ __forceinline__ void prepare_role(const ChunkForwardParams& p, SharedMemoryPlan<C>& s) {
  WorkReader<C> work(s);
  PrepareCursors<C> at;
  float kk[32], qk[32];
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const int chunks = item.chunks();
    if (chunks == 0) continue;
    issue_products<C>(s, at, kk, qk);
    for (int c = 1; c < chunks; ++c) {
      finish_products<C>(p, s, at, kk, qk, 64);
      issue_products<C>(s, at, kk, qk);
      finish_chunk<C>(s, at);
    }
    finish_products<C>(p, s, at, kk, qk, item.rows(chunks - 1));
    finish_chunk<C>(s, at);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_
