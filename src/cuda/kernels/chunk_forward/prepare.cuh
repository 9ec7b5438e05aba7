// Runs the aux warpgroup: Tmat, P and row factors of every chunk, ahead of the state warpgroups.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_forward {

using tile::Accumulator, tile::issue_product;

/// out = diag(row) x diag(columns) for block kBlock of this warp's rows of a product.
template <int kBlock>
__device__ __forceinline__ void scale_block(float (&out)[8], const Accumulator<64>& product,
                                            const float (&row)[2], const float* columns) {
  const auto& x = product.x;
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int column = kBlock * 16 + t * 8 + tile::lane_column();
    const float2 c = *reinterpret_cast<const float2*>(&columns[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = t * 4 + i * 2;
      out[at] = row[i] * c.x * x[kBlock * 8 + at];
      out[at + 1] = row[i] * c.y * x[kBlock * 8 + at + 1];
    }
  }
}

/// The diagonal block of a product times row factors, Gamma and column norms. kSign = 1: rows are
/// i, columns j, kept if j < i (A). kSign = -1: rows are j, columns i, kept if i >= j (P,
/// transposed).
template <bool kNorm, int kSign>
__device__ __forceinline__ void decay_diagonal(float (&out)[8], const Accumulator<64>& product,
                                               int warp, const float (&row)[2], const float* G,
                                               const float* norms) {
  const auto& x = product.x;
  const int difference =
      tile::lane_row() - tile::lane_column();  // row - column of e = 0 in the 8x8 blocks
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int column = warp * 16 + t * 8 + tile::lane_column();
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
    float2 norm = make_float2(1.0f, 1.0f);
    if constexpr (kNorm) norm = *reinterpret_cast<const float2*>(&norms[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float g_row = G[warp * 16 + i * 8 + tile::lane_row()];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = t * 4 + i * 2 + e;
        if (kSign * i < kSign * t) {
          out[at] = 0.0f;
          continue;
        }
        const float raw =
            warp < 2 ? (warp == 0 ? x[at] : x[8 + at]) : (warp == 2 ? x[16 + at] : x[24 + at]);
        const float gamma = tile::exp2_fast(kSign * (g_row - (e ? g.y : g.x)));
        const bool kept = i != t || (kSign > 0 ? e < difference : e >= difference);
        out[at] = kept ? row[i] * gamma * (e ? norm.y : norm.x) * raw : 0.0f;
      }
    }
  }
}

/// A block as packed 16-bit numbers.
template <class T>
__device__ __forceinline__ void pack_block(uint32_t (&out)[4], const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = tile::Packed<T>::pack(x[2 * i], x[2 * i + 1]);
}

/// Index of this warp in the aux warpgroup, known to the compiler to be the same in all lanes.
__device__ __forceinline__ int aux_warp() { return __shfl_sync(~0u, tile::warp_of_group(), 0); }

/// Block (warp, kBlock) of A, below the diagonal, to `blocks` in fp16.
template <class C, int kBlock>
__device__ __forceinline__ void store_a_block(int warp, const Accumulator<64>& kk,
                                              const float (&factor)[2],
                                              const typename C::Gate& gate,
                                              const BlockTile& blocks) {
  if (kBlock >= warp) return;
  const int i = warp * 16 + tile::lane_row();
  const float row[2] = {factor[0] * gate.row[kBlock][i], factor[1] * gate.row[kBlock][i + 8]};
  float a[8];
  uint32_t packed[4];
  scale_block<kBlock>(a, kk, row, key_columns(gate));
  pack_block<__half>(packed, a);
  ptx::stmatrix_x4(blocks.block(warp, kBlock), packed);
  if constexpr (kTwoPartA<typename C::Io>) {
#pragma unroll
    for (float& x : a) x = fp16_rest(x);
    pack_block<__half>(packed, a);
    ptx::stmatrix_x4(blocks.block(kBlock, warp), packed);
  }
}

/// This warp's rows of A: to `blocks` in fp16, but the 8x8 blocks on the diagonal to `diagonal` in
/// float32.
template <class C>
__device__ __forceinline__ void store_a(int warp, const Accumulator<64>& kk,
                                        const float (&factor)[2], const typename C::Gate& gate,
                                        DiagonalBlock (&diagonal)[8], const BlockTile& blocks) {
  const int row = tile::lane_row();
  const int column = tile::lane_column();
  float a[8];
  decay_diagonal<C::kL2Norm, 1>(a, kk, warp, factor, gate.G, key_norms(gate));
  *reinterpret_cast<float2*>(&diagonal[2 * warp].row[row][column]) = make_float2(a[0], a[1]);
  *reinterpret_cast<float2*>(&diagonal[2 * warp + 1].row[row][column]) = make_float2(a[6], a[7]);
  ptx::store_shared_4(
      blocks.base + tile::swizzled_element(static_cast<uint32_t>(warp * 16 + 8 + row),
                                           static_cast<uint32_t>(warp * 16 + column)),
      tile::Packed<__half>::pack(a[2], a[3]));
  if constexpr (kTwoPartA<typename C::Io>) {
    ptx::store_shared_4(
        blocks.base + tile::swizzled_element(static_cast<uint32_t>(warp * 16 + row),
                                             static_cast<uint32_t>(warp * 16 + 8 + column)),
        tile::Packed<__half>::pack(fp16_rest(a[2]), fp16_rest(a[3])));
  }
  store_a_block<C, 0>(warp, kk, factor, gate, blocks);
  store_a_block<C, 1>(warp, kk, factor, gate, blocks);
  store_a_block<C, 2>(warp, kk, factor, gate, blocks);
}

/// A block of P^T, from registers to P.
template <class C>
__device__ __forceinline__ void store_transposed(const float (&p)[8], const BlockTile& p_tile,
                                                 int row, int column) {
  uint32_t packed[4];
  pack_block<typename C::Io>(packed, p);
  // Transposing exchanges the parts off the diagonal.
  const uint32_t exchanged[4] = {packed[0], packed[2], packed[1], packed[3]};
  ptx::stmatrix_x4_trans(p_tile.block(row, column), exchanged);
}

/// Block (warp, kBlock) of P^T, right of the diagonal.
template <class C, int kBlock>
__device__ __forceinline__ void store_p_block(int warp, const Accumulator<64>& kq,
                                              const float (&factor)[2],
                                              const typename C::Gate& gate,
                                              const BlockTile& p_tile) {
  if (kBlock <= warp) return;
  const int j = warp * 16 + tile::lane_row();
  const float row[2] = {factor[0] * gate.column[j], factor[1] * gate.column[j + 8]};
  float p[8];
  scale_block<kBlock>(p, kq, row, query_rows(gate, warp));
  store_transposed<C>(p, p_tile, kBlock, warp);
}

/// This warp's rows of P^T, to P. WHY transposed: warps with many blocks of A then have few of P.
template <class C>
__device__ __forceinline__ void store_p(int warp, const Accumulator<64>& kq,
                                        const float (&factor)[2], const typename C::Gate& gate,
                                        const BlockTile& p_tile) {
  store_p_block<C, 1>(warp, kq, factor, gate, p_tile);
  store_p_block<C, 2>(warp, kq, factor, gate, p_tile);
  store_p_block<C, 3>(warp, kq, factor, gate, p_tile);
  float p[8];
  decay_diagonal<C::kL2Norm, -1>(p, kq, warp, factor, gate.G, query_norms(gate));
  store_transposed<C>(p, p_tile, warp, warp);
}

/// The factors that the state warpgroups apply to rows and columns; threads 0..63 own a token each.
template <class C>
__device__ __forceinline__ void store_factors(const PrefillParams& p, const typename C::Gate& gate,
                                              FactorSlot& out) {
  const int t = tile::thread_of_group();
  if (t >= 64) return;
  const float G = gate.G[t], last = gate.G[63];
  const float rk = C::kL2Norm ? key_norms(gate)[t] : 1.0f;
  const float rq = C::kL2Norm ? query_norms(gate)[t] : 1.0f;
  const float decay = tile::exp2_fast(G);
  out.recall[t] = decay * rk;
  out.query[t] = decay * rq * p.scale;
  out.write[t] = tile::exp2_fast(last - G) * rk;
  if (t == 63) out.decay = decay;
}

/// The aux warpgroup's places in the rings. WHY few cursors: registers are scarce.
template <class C>
struct PrepareCursors {
  tile::RingCursor<C::kKSlots> k;
  tile::RingCursor<C::kQSlots> q;  ///< and the factors
  tile::RingCursor<C::kPSlots> p;  ///< and `blocks`, `diagonal`
  tile::RingCursor<C::kGateSlots> gate;

  static_assert(C::kQSlots == C::kFactorSlots && C::kPSlots == 2);
};

/// Issues Kc X^T of the chunk at the cursors, X its k or q tile.
template <class C>
__device__ __forceinline__ void issue_with_k(SharedMemoryPlan<C>& s, const PrepareCursors<C>& at,
                                             Accumulator<64>& acc, const typename C::KeyTile& x) {
  ptx::wgmma_fence();
  issue_product(acc, s.k[at.k.slot], x);
  ptx::wgmma_commit();
}

/// Issues KK^T of the chunk at the cursors.
template <class C>
__device__ __forceinline__ void issue_kk(SharedMemoryPlan<C>& s, const PrepareCursors<C>& at,
                                         Accumulator<64>& kk) {
  // SYNC k_ring.full: the aux warpgroup waits for k
  at.k.wait(s.k_ring);
  issue_with_k<C>(s, at, kk, s.k[at.k.slot]);
}

/// First part of a chunk: the factors and A. On entry KK^T is in flight.
template <class C>
__device__ __forceinline__ void prepare_keys(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                             PrepareCursors<C>& at, Accumulator<64>& acc,
                                             int rows) {
  const int warp = aux_warp();
  const int row = warp * 16 + tile::lane_row();
  const uint32_t gate_ready = at.gate.ready(s.gate_ring),
                 factors_vacant = at.q.vacant(s.factor_ring),
                 blocks_vacant = at.p.vacant(s.block_ring);
  // SYNC gate_ring.full: the aux warpgroup waits for G and beta
  if (!gate_ready) at.gate.wait(s.gate_ring);
  // SYNC factor_ring.empty: the state warpgroups are done with the slot's previous chunk
  if (!factors_vacant) at.q.acquire(s.factor_ring);
  // SYNC block_ring.empty: the finish warp is done with the slot's previous chunk
  if (!blocks_vacant) at.p.acquire(s.block_ring);
  const auto& gate = s.gates[at.gate.slot];
  store_factors<C>(p, gate, s.factors[at.q.slot]);
  const float* const norms = key_norms(gate);
  const float factor[2] = {gate.beta[row] * (C::kL2Norm ? norms[row] : 1.0f),
                           gate.beta[row + 8] * (C::kL2Norm ? norms[row + 8] : 1.0f)};
  ptx::wgmma_wait<0>();
  tile::pin(acc);
  if (rows < C::kChunk) {
    // WHY here: no product of this warpgroup reads the tile now.
    s.k[at.k.slot].zero_rows_from(rows);
    ptx::fence_proxy_async();
    acc.mask_from(rows);
  }
  store_a<C>(warp, acc, factor, gate, s.diagonal[at.p.slot], BlockTile(s.blocks[at.p.slot].bytes));
  // SYNC block_ring.full: this warp's rows of A are written
  at.p.commit(s.block_ring);
  // SYNC factor_ring.full: the factors and the zeroed tail of k are written
  at.q.commit(s.factor_ring);
}

/// Second part: P, left unannounced.
template <class C>
__device__ __forceinline__ void prepare_queries(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                                PrepareCursors<C>& at, Accumulator<64>& acc,
                                                int rows) {
  const int warp = aux_warp(), row = warp * 16 + tile::lane_row();
  const auto& gate = s.gates[at.gate.slot];
  const float* const norms = key_norms(gate);
  const float factor[2] = {p.scale * (C::kL2Norm ? norms[row] : 1.0f),
                           p.scale * (C::kL2Norm ? norms[row + 8] : 1.0f)};
  // SYNC q_ring.full: the aux warpgroup waits for q
  at.q.wait(s.q_ring);
  issue_with_k<C>(s, at, acc, s.q[at.q.slot]);
  ptx::wgmma_wait<0>();
  tile::pin(acc);
  if (rows < C::kChunk) acc.mask_from(rows);
  // SYNC k_ring.empty, q_ring.empty: the aux warpgroup has read the tiles
  at.k.release(s.k_ring);
  at.q.release(s.q_ring);
  at.k.next();
  at.q.next();
  // SYNC p_ring.empty: the state warpgroups are done with the slot's previous P
  at.p.acquire(s.p_ring);
  store_p<C>(warp, acc, factor, gate, BlockTile(s.P[at.p.slot].bytes));
}

/// Second part without an output: k goes back.
template <class C>
__device__ __forceinline__ void skip_queries(SharedMemoryPlan<C>& s, PrepareCursors<C>& at) {
  // SYNC k_ring.empty: the aux warpgroup has read the tile
  at.k.release(s.k_ring);
  at.k.next();
  at.q.next();
}

/// Announces P, if there is one, and turns to the next chunk.
template <class C>
__device__ __forceinline__ void finish_queries(SharedMemoryPlan<C>& s, PrepareCursors<C>& at) {
  if constexpr (C::kOutput) {
    ptx::fence_proxy_async();
    // SYNC p_ring.full: P is written
    at.p.commit(s.p_ring);
  }
  // SYNC gate_ring.empty: G and beta have been read
  at.gate.release(s.gate_ring);
  at.gate.next();
  at.p.next();
}

/// Aux warpgroup. WHY one accumulator: the registers of a second one are worth more to the finish
/// warps; the next KK^T runs under the announcement of P and the factors.
template <class C>
__device__ __forceinline__ void prepare_role(const PrefillParams& p, SharedMemoryPlan<C>& s) {
  device::WorkReader work(s.work_ring, s.work);
  PrepareCursors<C> at;
  Accumulator<64> acc;
  const auto prepare_output = [&](int rows) {
    if constexpr (C::kOutput) {
      prepare_queries<C>(p, s, at, acc, rows);
    } else {
      skip_queries<C>(s, at);
    }
  };
  for (WorkItem item = work.next(); item.valid(); item = work.next()) {
    const int chunks = item.chunks();
    if (chunks == 0) continue;
    issue_kk<C>(s, at, acc);
    for (int c = 1; c < chunks; ++c) {
      prepare_keys<C>(p, s, at, acc, C::kChunk);
      prepare_output(C::kChunk);
      issue_kk<C>(s, at, acc);
      finish_queries<C>(s, at);
    }
    const int rows = item.rows(chunks - 1);
    prepare_keys<C>(p, s, at, acc, rows);
    prepare_output(rows);
    finish_queries<C>(s, at);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_CUH_
