// Runs the chains of chunk_backward on Hopper: states of the delta rule from the first chunk of a
// sequence to the last, and gradients of states from the last to the first.
//
// Math      docs/math.md (18). S enters a chunk:
//             R = v - diag(exp G) k S,  e = R - B diag(beta) R
//             S' = exp(G_C) S + k^T diag(E beta) e
//           D' leaves a chunk, D enters it:
//             dN = P^T d_o + diag(E) k D',  P = scale tril(exp(G_i - G_j) q_i . k_j)
//             Y = dN - B^T diag(beta) dN,  dv = diag(beta) Y,  dbeta_i = Y_i . e_i
//             D = exp(G_C) D' + q^T diag(scale exp G) d_o - k^T diag(exp G) dv
// Roles     persistent grid, an item is 64 or 128 columns of V of one (sequence, head). Warpgroup
//           0: a warp that loads, others that make factors of chunks by turns. Of gradients
//           warpgroup 1: P. Each of the others has S^T or D^T of 64 columns in registers: rows are
//           columns of V, so that what one product gives is the left operand of the next
// Pipeline  (arrows are mbarrier rings) operands, factors --> P --> the state rounded -> R or dN,
//           while the state leaves and q^T d_o is added to D -> e, or Y, dv and dbeta -> the state
// Memory    ChainShared: 4 stages of up to 40 KB, or 2 or 3 of 72 or 56 KB and two of P; a tile
//           each of the state and of e or dv
// Floor     docs/kernels/backward.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_

#include "cuda/kernels/backward/chain_items.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/tile_rows.cuh"

namespace sluice::cuda::backward {

using tile::Accumulator, tile::Operand;

/// Warpgroup of scores: P of every chunk.
template <class C>
__device__ __forceinline__ void score_role(const ChainParams& p, ChainShared<C>& s, int64_t items) {
  tile::RingCursor<C::kStages> cursor;
  tile::RingCursor<C::kScoreStages> scores;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const ChainItem item = chain_item<C>(p.all.stage, number);
    for (int step = 0; step < item.chunks; ++step, cursor.next(), scores.next()) {
      // SYNC ring.full: q, k and G are there
      cursor.wait(s.ring);
      Accumulator<64> x;
      ptx::wgmma_fence();
      tile::issue_product(x, s.stage[cursor.stage].q, s.stage[cursor.stage].k);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      tile::pin(x);
      const float* const G = s.factors[cursor.stage].G;
      const float own[2] = {G[tile::group_row()], G[tile::group_row() + 8]};
      const int rows = item.rows(item.template chunk<C>(step));
#pragma unroll
      for (int at = 0; at < x.kSize; ++at) {
        const int i = x.row(at), j = x.column(at);
        // WHY a choice: above the diagonal the exponential may be infinite, and rows past the end
        // are another sequence's.
        const float score = p.all.stage.scale * decay(own[at / 2 % 2] - G[j]) * x.x[at];
        x.x[at] = j <= i && i < rows ? score : 0.0f;
      }
      // SYNC ring.empty: this warp's reads of the stage are over
      cursor.release(s.ring);
      // SYNC score_ring.empty: the states are done with the P before the last
      scores.acquire(s.score_ring);
      tile::put_rows(s.P[scores.stage], x);
      ptx::fence_proxy_async();
      // SYNC score_ring.full: this warp's rows of P are written
      scores.commit(s.score_ring);
    }
  }
}

/// d_o^T with scale exp(G), rounded, and without; columns past the end are zero.
template <class Io>
__device__ __forceinline__ void load_outputs(Operand<Io, 64>& raw, Operand<Io, 64>& scaled,
                                             uint32_t tile, const float* query, int rows) {
  using Pack = tile::Packed<Io>;
  raw.load_turned(tile);
  if (rows < kTokens) raw.mask_columns_from(rows);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&query[8 * j + tile::lane_column()]);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      scaled.x[at] = Pack::pack(f.x * Pack::first(raw.x[at]), f.y * Pack::second(raw.x[at]));
    }
  }
}

/// a with a factor a column, rounded.
template <class Io>
__device__ __forceinline__ void scale_to(Operand<Io, 64>& out, const Accumulator<64>& a,
                                         const float* factors, float sign) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&factors[8 * j + tile::lane_column()]);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      out.x[at] = tile::Packed<Io>::pack(sign * f.x * a.x[2 * at], sign * f.y * a.x[2 * at + 1]);
    }
  }
}

/// -exp(G) dv^T of Y^T, rounded; columns past the end are zero.
template <class Io>
__device__ __forceinline__ void recall_values(Operand<Io, 64>& out, const Accumulator<64>& Y,
                                              const ChainFactors& f, int rows) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int column = 8 * j + tile::lane_column();
    const float2 beta = *reinterpret_cast<const float2*>(&f.beta[column]),
                 recall = *reinterpret_cast<const float2*>(&f.recall[column]);
    const float x = beta.x * recall.x, y = beta.y * recall.y;
    const uint32_t kept = tile::tail_mask(rows - column);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      out.x[at] = tile::Packed<Io>::pack(x * Y.x[2 * at], y * Y.x[2 * at + 1]) & kept;
    }
  }
}

/// dv^T in the place of Y^T, and the warp's part of dbeta.
template <class Io>
__device__ __forceinline__ void correct_values(Accumulator<64>& a, const Operand<Io, 64>& e,
                                               const ChainFactors& f, float* dbeta) {
  using Pack = tile::Packed<Io>;
  float sums[16];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 beta = *reinterpret_cast<const float2*>(&f.beta[8 * j + tile::lane_column()]);
    sums[2 * j] = sums[2 * j + 1] = 0.0f;
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      sums[2 * j] = fmaf(a.x[2 * at], Pack::first(e.x[at]), sums[2 * j]);
      sums[2 * j + 1] = fmaf(a.x[2 * at + 1], Pack::second(e.x[at]), sums[2 * j + 1]);
      a.x[2 * at] *= beta.x;
      a.x[2 * at + 1] *= beta.y;
    }
  }
  ptx::sum_over_lanes<2, 3>(sums);
  if (tile::lane_row() != 0) return;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    *reinterpret_cast<float2*>(&dbeta[8 * j + tile::lane_column()]) = {sums[2 * j],
                                                                       sums[2 * j + 1]};
  }
}

/// R^T in the place of S^T k^T, and -diag(beta) R rounded; columns past the end are zero. v^T comes
/// in `left`, which is overwritten.
template <class Io>
__device__ __forceinline__ void residual(Accumulator<64>& a, Operand<Io, 64>& left,
                                         const ChainFactors& f, int rows) {
  using Pack = tile::Packed<Io>;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int column = 8 * j + tile::lane_column();
    const float2 beta = *reinterpret_cast<const float2*>(&f.beta[column]),
                 recall = *reinterpret_cast<const float2*>(&f.recall[column]);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      const float x = fmaf(recall.x, a.x[2 * at], Pack::first(left.x[at])),
                  y = fmaf(recall.y, a.x[2 * at + 1], Pack::second(left.x[at]));
      a.x[2 * at] = column < rows ? x : 0.0f;
      a.x[2 * at + 1] = column + 1 < rows ? y : 0.0f;
      left.x[at] = Pack::pack(-beta.x * a.x[2 * at], -beta.y * a.x[2 * at + 1]);
    }
  }
}

/// One chunk of states, whose operands are at the cursor. S becomes the state that leaves it.
template <class C>
__device__ __forceinline__ void run_states(const ChainParams& p, ChainShared<C>& s,
                                           const ChainPlace& place, const ChainItem& item,
                                           int chunk, int stage, Accumulator<128>& S) {
  using Io = typename C::Io;
  ChainStage<C>& from = s.stage[stage];
  const ChainFactors& f = s.factors[stage];
  const int rows = item.rows(chunk);
  Operand<Io, 128> state;
  Operand<Io, 64> left, writes;
  Accumulator<64> a;
  state.pack(S);
  if (rows < kTokens) {
    // Rows past the end are another sequence's, and may be NaN.
    from.k.zero_rows_from(rows);
    from.B.zero_rows_from(rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tails are zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = f.decay;
  ptx::wgmma_fence();
  tile::issue_recall(a, state, from.k);
  state.store_turned(s.state[place.group].address() + place.offset);
  left.load_turned(from.rows.address() + place.group * from.rows.kBlockBytes + place.offset);
  send_state(p, s, place, item, chunk);
  ptx::wgmma_wait<0>();
  tile::pin(a);
  tile::pin(state);
  residual(a, left, f, rows);
  tile::pin(left);
  ptx::wgmma_fence();
  tile::issue_mix(a, left, from.B, 1);
  S.scale(decay);
  ptx::wgmma_wait<0>();
  tile::pin(a);
  tile::pin(left);
  scale_to<Io>(writes, a, f.write, 1.0f);
  tile::pin(writes);
  ptx::wgmma_fence();
  tile::issue_update(S, writes, from.k);
  left.pack(a);
  send_rows<C>(p, s, place, item, chunk, p.all.stage.v_new, left);
  ptx::wgmma_wait<0>();
  tile::pin(S);
  tile::pin(writes);
}

/// One chunk of gradients, whose operands are at the cursors. D becomes the gradient of the state that enters it.
template <class C>
__device__ __forceinline__ void run_gradients(const ChainParams& p, ChainShared<C>& s,
                                              const ChainPlace& place, const ChainItem& item,
                                              int chunk, int stage,
                                              const tile::RingCursor<2>& scores,
                                              Accumulator<128>& D) {
  using Io = typename C::Io;
  ChainStage<C>& from = s.stage[stage];
  const ChainFactors& f = s.factors[stage];
  const int rows = item.rows(chunk);
  Operand<Io, 128> state;
  Operand<Io, 64> left, scaled;
  Accumulator<64> a;
  state.pack(D);
  if (rows < kTokens) {
    // Rows past the end are another sequence's, and may be NaN.
    from.k.zero_rows_from(rows);
    from.q.zero_rows_from(rows);
    if constexpr (C::kDelta) from.B.zero_rows_from(rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tails are zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = f.decay;
  // SYNC score_ring.full: P is there. WHY early: a branch with products in flight ends them.
  scores.wait(s.score_ring);
  ptx::wgmma_fence();
  tile::issue_recall(a, state, from.k);
  // PERF behind it at once: the tensor cores work in order, and what a needs next is not there yet.
  load_outputs<Io>(left, scaled,
                   from.rows.address() + place.group * from.rows.kBlockBytes + place.offset,
                   f.query, rows);
  D.scale(decay);
  tile::pin(left);
  tile::pin(scaled);
  ptx::wgmma_fence();
  tile::issue_update(D, scaled, from.q);
  state.store_turned(s.state[place.group].address() + place.offset);
  send_state(p, s, place, item, chunk);
  ptx::wgmma_wait<1>();
  tile::pin(a);
  tile::pin(state);
  a.scale_columns(f.write);
  ptx::wgmma_fence();
  tile::issue_update(a, left, s.P[scores.stage]);
  ptx::wgmma_wait<0>();
  tile::pin(a);
  tile::pin(D);
  tile::pin(left);
  tile::pin(scaled);
  if constexpr (C::kDelta) {
    scale_to<Io>(left, a, f.beta, -1.0f);
    tile::pin(left);
    ptx::wgmma_fence();
    tile::issue_update(a, left, from.B);
    Operand<Io, 64> e;
    e.load_turned(from.e.address() + place.group * from.e.kBlockBytes + place.offset);
    ptx::wgmma_wait<0>();
    tile::pin(a);
    tile::pin(left);
    recall_values<Io>(left, a, f, rows);
    tile::pin(left);
    ptx::wgmma_fence();
    tile::issue_update(D, left, from.k);
    correct_values<Io>(a, e, f, s.dbeta[place.group][tile::warp_of_group()]);
    send_values<C>(p, s, place, item, chunk, a);
    ptx::wgmma_wait<0>();
    tile::pin(D);
    tile::pin(left);
  } else {
    send_values<C>(p, s, place, item, chunk, a);
  }
}

/// Warpgroup `group` of states.
template <class C>
__device__ __forceinline__ void chain_role(const ChainParams& p, ChainShared<C>& s, int64_t items,
                                           int group) {
  const StageParams& stage = p.all.stage;
  tile::RingCursor<C::kStages> cursor;
  tile::RingCursor<C::kScoreStages> scores;
  ChainPlace place{group, 1 + static_cast<uint32_t>(group), tile::turned_piece()};
  Accumulator<128> state;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    ChainItem item = chain_item<C>(stage, number);
    item.state = static_cast<int32_t>(item.sequence.batch * p.states_per_batch +
                                      device::chunks_before(stage, item.sequence.seq));
    state.clear();
    with_state<C>(
        stage, C::kBack ? p.all.d_final : stage.state.initial, item, group,
        [&](const auto* data, const auto& at) { device::load_elements(data, at, state); });
#pragma unroll 1
    for (int step = 0; step < item.chunks; ++step, cursor.next()) {
      // SYNC ring.full: the states wait for the chunk
      cursor.wait(s.ring);
      const int chunk = item.template chunk<C>(step);
      if constexpr (C::kBack) {
        run_gradients<C>(p, s, place, item, chunk, cursor.stage, scores, state);
        // SYNC score_ring.empty: this warp's reads of P are over
        scores.release(s.score_ring);
        scores.next();
      } else {
        run_states<C>(p, s, place, item, chunk, cursor.stage, state);
      }
      // SYNC ring.empty: this warp's reads of the stage are over
      cursor.release(s.ring);
      place.turn = C::kOutStages - 1 - place.turn;
    }
    if constexpr (C::kBack) {
      with_state<C>(stage, p.all.dinitial, item, group,
                    [&](auto* data, const auto& at) { device::store_elements(data, at, state); });
    }
  }
  // The copy engine reads shared memory, which the CTA takes with it.
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
}

/// See the head of this file. Items are sequences x heads x slices of V.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chain_tiles_kernel(const __grid_constant__ ChainParams p, int64_t items) {
  auto& s = *reinterpret_cast<ChainShared<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.ring.init(2, 4 * (C::kFirstGroup - 1 + C::kGroups));
    s.score_ring.init(4, 4 * C::kGroups);
    ptx::fence_mbarrier_init();
    for (const CUtensorMap* map : {&p.k, &p.rows}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  device::follow();
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) {
      chain_load_role<C>(p, s, items);
    } else if (warp <= C::kGateWarps) {
      chain_gate_role<C>(p, s, items, warp - 1);
    }
  } else if (warpgroup >= C::kFirstGroup) {
    ptx::increase_registers<C::kStateRegisters>();
    chain_role<C>(p, s, items, warpgroup - C::kFirstGroup);
  } else if constexpr (C::kBack) {
    ptx::decrease_registers<C::kScoreRegisters>();
    score_role<C>(p, s, items);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
