// Runs the chains of chunk_backward on Hopper: states of the delta rule from the first chunk of a
// sequence to the last, and gradients of states from the last to the first.
//
// Math      docs/math.md (18). S enters a chunk:
//             R = v - diag(exp G) k S,  e = R - B diag(beta) R
//             S' = exp(G_C) S + k^T diag(E beta) e
//           D' leaves a chunk, D enters it:
//             dN = P^T d_o + diag(E) k D',  P = scale tril(exp(G_i - G_j) q_i . k_j)
//             Y = dN - B^T diag(beta) dN,  dv = diag(beta) Y
//             D = exp(G_C) D' + q^T diag(scale exp G) d_o - k^T diag(exp G) dv
// Roles     persistent grid, an item is 64 or 128 columns of V of one (sequence, head). Warpgroup
//           0: a warp that loads, two that make factors of chunks by turns, one that stores. Of
//           gradients warpgroup 1: P, P^T d_o, and d_o with its factors. Each of the others has S^T
//           or D^T of 64 columns in registers: rows are columns of V, so that what one product
//           gives is the left operand of the next
// Pipeline  (arrows are mbarrier rings) operands, factors --> P --> the state rounded -> R or dN,
//           while the state leaves and q^T d_o is added to D -> e, or Y and dv -> the state
// Memory    ChainShared: 4 slots of up to 40 KB, or 3 or 2 of 48 or 56 KB; two tiles of P; 16 KB
//           of dN and a tile of the state for 64 columns; a tile or two of e or dv
// Floor     docs/kernels/backward.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_

#include "cuda/kernels/backward/chain_scores.cuh"
#include "cuda/tile/shared_products.cuh"

namespace sluice::cuda::backward {

/// A role's places in the rings of a warpgroup of states.
template <class C>
struct ChainCursors {
  tile::RingCursor<C::kSlots> chunk;
  tile::RingCursor<1> scores, state;
  tile::RingCursor<C::kOutSlots> out;
  __device__ __forceinline__ void next() {
    chunk.next();
    scores.next();
    state.next();
    out.next();
  }
};

/// The state to its tile.
template <class C>
__device__ __forceinline__ void put_state(ChainShared<C>& s, const ChainPlace& place,
                                          const ChainCursors<C>& at,
                                          const Operand<typename C::Io, 128>& state) {
  state.store_turned(s.state[place.group].address() + place.offset);
  ptx::fence_proxy_async();
  // SYNC state_ring.full: this warp's columns of the state are written
  at.state.commit(s.state_ring);
}

/// Rows to their tile.
template <class C>
__device__ __forceinline__ void put_values(ChainShared<C>& s, const ChainPlace& place,
                                           const ChainCursors<C>& at,
                                           const Operand<typename C::Io, 64>& rows) {
  rows.store_turned(s.out[place.group][at.out.slot].address() + place.offset);
  ptx::fence_proxy_async();
  // SYNC out_ring.full: this warp's columns of the rows are written
  at.out.commit(s.out_ring);
}

/// One chunk of states, whose operands are at the cursors. S becomes the state that leaves it.
template <class C>
__device__ __forceinline__ void run_states(ChainShared<C>& s, const ChainPlace& place,
                                           const ChainCursors<C>& at, int rows,
                                           Accumulator<128>& S) {
  using Io = typename C::Io;
  using Pack = tile::Packed<Io>;
  ChainSlot<C>& from = s.slots[at.chunk.slot];
  const ChainFactors& f = s.factors[at.chunk.slot];
  Operand<Io, 128> state;
  Operand<Io, 64> left, writes;
  Accumulator<64> a;
  float v[32];
  state.pack(S);
  if (rows < kTokens) {
    // Rows past the end are another sequence's, and may be NaN.
    from.k.zero_rows_from(rows);
    from.rows[place.group].zero_rows_from(rows);
    from.B.zero_rows_from(rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tails are zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = f.decay;
  // SYNC state_ring.empty: the state before has left. WHY early: a branch with products in flight
  // ends them.
  at.state.acquire(s.state_ring);
  ptx::wgmma_fence();
  tile::issue_recall(a, state, from.k);
  // PERF all that does not wait for the product is done beside it.
  left.load_turned(from.rows[place.group].address() + place.offset);
  const ColumnFactors recall(f.recall), mix(f.mix);
  put_state(s, place, at, state);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    v[2 * i] = Pack::first(left.x[i]);
    v[2 * i + 1] = Pack::second(left.x[i]);
  }
  ptx::pin(v);
  ptx::wgmma_wait<0>();
  tile::pin(a);
  tile::pin(state);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    a.x[i] = fmaf(i % 2 == 0 ? recall.x[i / 4].x : recall.x[i / 4].y, a.x[i], v[i]);
  }
  scale_to(left, a, mix);
  tile::pin(left);
  ptx::wgmma_fence();
  tile::issue_mix(a, left, from.B, 1);
  S.scale(decay);
  const ColumnFactors write(f.write);
  ptx::wgmma_wait<0>();
  tile::pin(a);
  tile::pin(left);
  scale_to(writes, a, write);
  // SYNC out_ring.empty: the tile's rows before have left
  at.out.acquire(s.out_ring);
  tile::pin(writes);
  ptx::wgmma_fence();
  tile::issue_update(S, writes, from.k);
  left.pack(a);
  put_values(s, place, at, left);
  ptx::wgmma_wait<0>();
  tile::pin(S);
  tile::pin(writes);
}

/// dv^T = diag(beta) Y^T of a chunk, as the caller wants it, to rows of any dtype, number by number.
__device__ __forceinline__ void store_values(const TokenRows& dv, const ChainItem& item, int chunk,
                                             int column, const ChainFactors& f,
                                             Accumulator<64>& Y) {
  const int rows = item.rows(chunk);
  const float back = -1.0f / f.gain;
  const int64_t start =
      at(dv, item.sequence.batch, item.sequence.row + int64_t{kTokens} * chunk, item.head) + column;
  Y.for_each([&](int v, int token, float x) {
    if (token >= rows) return;
    device::store_number(dv.data, start + token * dv.token_stride + v, dv.number,
                         back * f.mix[token] * x);
  });
}

/// One chunk of gradients, whose operands are at the cursors. D becomes the gradient of the state
/// that enters it, and `a` Y^T.
template <class C>
__device__ __forceinline__ void run_gradients(ChainShared<C>& s, const ChainPlace& place,
                                              const ChainCursors<C>& at, int rows,
                                              Accumulator<128>& D, Accumulator<64>& a) {
  using Io = typename C::Io;
  ChainSlot<C>& from = s.slots[at.chunk.slot];
  const ChainFactors& f = s.factors[at.chunk.slot];
  Operand<Io, 128> state;
  Operand<Io, 64> left;
  float4 inner[8];
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
  // SYNC state_ring.empty: the D' before has left. WHY early: a branch with products in flight ends
  // them.
  at.state.acquire(s.state_ring);
  // SYNC out_ring.empty: the tile's rows before have left; if there is one tile, acquire() later
  if constexpr (C::kOutSlots > 1) at.out.acquire(s.out_ring);
  // SYNC score_ring.full: what d_o has of dN, and d_o with its factors
  at.scores.wait(s.score_ring);
  ptx::wgmma_fence();
  tile::issue_recall(a, state, from.k);
  D.scale(decay);
  ptx::wgmma_fence();
  // PERF behind it at once, as much as fits while a is on its way to the next product's operand:
  // the tensor cores work in order. The rest goes behind that product.
  constexpr uint32_t kEarly = C::kDelta && C::kOutSlots > 1 ? 2 : 4;
  tile::issue_turned<0, kEarly>(D, from.rows[place.group], from.q);
  put_state(s, place, at, state);
  const auto load_inner = [&] {
#pragma unroll
    for (int j = 0; j < 8; ++j) inner[j] = s.inner[place.group][j][tile::thread_of_group()];
    // SYNC score_ring.empty: this warp has read the chunk's numbers. PERF at once: the next
    // chunk's are waiting for their place.
    at.scores.release(s.score_ring);
  };
  // PERF before the wait where registers are left.
  if constexpr (C::kGroups == 1) load_inner();
  const ColumnFactors write(f.write);
  ptx::wgmma_wait<1>();
  tile::pin(a);
  tile::pin(state);
  if constexpr (C::kGroups != 1) load_inner();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    a.x[4 * j] = fmaf(write.x[j].x, a.x[4 * j], inner[j].x);
    a.x[4 * j + 1] = fmaf(write.x[j].y, a.x[4 * j + 1], inner[j].y);
    a.x[4 * j + 2] = fmaf(write.x[j].x, a.x[4 * j + 2], inner[j].z);
    a.x[4 * j + 3] = fmaf(write.x[j].y, a.x[4 * j + 3], inner[j].w);
  }
  if constexpr (C::kDelta) {
    scale_to(left, a, ColumnFactors(f.mix));
    tile::pin(left);
    ptx::wgmma_fence();
    tile::issue_update(a, left, from.B);
    if constexpr (kEarly < 4) tile::issue_turned<kEarly, 4>(D, from.rows[place.group], from.q);
    const ColumnFactors recall(f.recall);
    ptx::wgmma_wait < kEarly<4 ? 1 : 0>();
    tile::pin(a);
    tile::pin(left);
    if constexpr (kEarly == 4) {
      tile::pin(D);
      at.out.acquire(s.out_ring);
    }
    Operand<Io, 64> corrections;
    scale_to(corrections, a, recall);
    tile::pin(corrections);
    ptx::wgmma_fence();
    tile::issue_update(D, corrections, from.k);
    scale_to(left, a, ColumnFactors(f.value));
    put_values(s, place, at, left);
    ptx::wgmma_wait<0>();
    tile::pin(D);
    tile::pin(corrections);
  } else {
    ptx::wgmma_wait<0>();
    tile::pin(D);
    if constexpr (C::kOutSlots == 1) at.out.acquire(s.out_ring);
    scale_to(left, a, ColumnFactors(f.value));
    put_values(s, place, at, left);
  }
}

/// Warpgroup `group` of states.
template <class C>
__device__ __forceinline__ void chain_role(const ChainParams& p, ChainShared<C>& s, int group) {
  const BackwardParams& b = p.all;
  const bool apart = b.dv.data != nullptr;
  const ChainPlace place{group, 1 + static_cast<uint32_t>(group), tile::turned_piece()};
  ChainCursors<C> at;
  Accumulator<128> state;
  for (int number = first_item(p); number < p.items; number += p.ctas) {
    const ChainItem item = chain_item<C>(p, number);
    if (!item.exists) continue;
    state.clear();
    if (item.is_factor && !(C::kWindows && item.template entry<C>() == ChainItem::kBorder)) {
      device::set_identity(item.column + 64 * group, state);
    } else {
      with_state(
          b.stage, entering_state<C>(p, item), item, group,
          [&](const auto* data, const auto& place) { load_state(data, place, b.stage.K, state); });
    }
    if constexpr (C::kScales) {
      const float gain = item_scale<C>(b, item);
      state.scale(gain);
      // Gradients of any segment's chunks want it.
      const bool is_one = item.column == 0 && group == 0 && tile::is_first_of_group();
      if (is_one) b.scales[item.sequence.seq * b.stage.HV + item.head] = gain;
    }
#pragma unroll 1
    for (int step = 0; step < item.chunks; ++step, at.next()) {
      // SYNC ring.full: the states wait for the chunk
      at.chunk.wait(s.ring);
      const int chunk = item.template chunk<C>(step);
      if constexpr (C::kBack) {
        Accumulator<64> Y;
        run_gradients<C>(s, place, at, item.rows(chunk), state, Y);
        if (__builtin_expect(apart && item.sends, 0)) {
          store_values(b.dv, item, chunk, item.column + 64 * group, s.factors[at.chunk.slot], Y);
        }
      } else {
        run_states<C>(s, place, at, item.rows(chunk), state);
      }
      // SYNC ring.empty: this warp's reads of the slot are over
      at.chunk.release(s.ring);
    }
    if constexpr (C::kScales) state.scale(1.0f / item_scale<C>(b, item));
    const auto leave = [&](const StateOf& to) {
      with_state(b.stage, to, item, group, [&](auto* data, const auto& place) {
        store_state(data, place, b.stage.K, state);
      });
    };
    leave(leaving_state<C>(p, item));
    if (item.is_factor) leave(boundary_state(b.stage, b.cut.by_columns, item.after, true));
  }
}

/// All roles of a CTA.
template <class C>
__device__ __forceinline__ void run_chain(const ChainParams& p) {
  auto& s = *reinterpret_cast<ChainShared<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.ring.init(2, 4 * (C::kFirstGroup - 1 + C::kGroups));
    s.score_ring.init(4, 4 * C::kGroups);
    s.state_ring.init(4 * C::kGroups, 1);
    s.out_ring.init(4 * C::kGroups, 1);
    ptx::fence_mbarrier_init();
    for (const CUtensorMap* map : {&p.k, &p.rows}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  device::follow();
  if constexpr (C::kChain == Chain::kLinear) {
    // Nobody else's launch is the last before gradients. These wait for the end of this one.
    if (blockIdx.x == 0 && threadIdx.x == 0) *p.all.dealt = 0;
  }
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) {
      chain_load_role<C>(p, s);
    } else if (warp == 3) {
      chain_store_role<C>(p, s);
    } else {
      chain_gate_role<C>(p, s, warp - 1);
    }
  } else if (warpgroup >= C::kFirstGroup + C::kGroups) {
    return;  // of a launch with the other chain
  } else if (warpgroup >= C::kFirstGroup) {
    ptx::increase_registers<C::kStateRegisters>();
    chain_role<C>(p, s, warpgroup - C::kFirstGroup);
  } else if constexpr (C::kBack) {
    ptx::decrease_registers<C::kScoreRegisters>();
    score_role<C>(p, s);
  }
}

/// See the head of this file.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chain_tiles_kernel(const __grid_constant__ ChainParams p) {
  run_chain<C>(p);
}

/// Both chains, side by side: the first CTAs have gradients, the others states.
template <class Io>
__global__ void __launch_bounds__(ChainConfig<Io, 64, Chain::kDelta>::kThreads, 1)
    both_chains_kernel(const __grid_constant__ BothChainsParams p) {
  if (static_cast<int>(blockIdx.x) < p.states.first_cta) {
    run_chain<ChainConfig<Io, 64, Chain::kDelta>>(p.gradients);
  } else {
    run_chain<ChainConfig<Io, 64, Chain::kStates>>(p.states);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
