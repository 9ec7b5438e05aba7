// Runs the state warpgroups: each keeps S^T for 64 columns of V in registers.
//
// Everything is transposed: rows are columns of V, columns are tokens or columns of K, so that
// accumulators of one product are the A operand of the next without leaving the registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_CUH_

#include "cuda/device/output_rows.cuh"
#include "cuda/device/state_io.cuh"
#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/products.cuh"

namespace sluice::cuda::chunk_forward {

using device::load_entering, device::OutputPlace, device::park_output, device::store_checkpoint;
using device::store_added, device::store_leaving, device::store_output, device::store_rows,
    device::wait_for_store;
using tile::Accumulator, tile::issue_mix, tile::issue_recall, tile::issue_update, tile::Operand;

/// R^T = V^T - (S^T Kc^T) diag(recall), packed; columns at or past `rows` are zero. `v` is this
/// lane's address in the v tile.
template <class Io>
__device__ __forceinline__ void residual(Operand<Io, 64>& r, uint32_t v, const Accumulator<64>& sk,
                                         const float* recall, int rows) {
  using Pack = tile::Packed<Io>;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (j % 2 == 0)
      ptx::ldmatrix_x4_trans(r.x + 2 * j, v + static_cast<uint32_t>(j) * tile::kAtomBytes);
    const float2 f = *reinterpret_cast<const float2*>(&recall[8 * j + tile::lane_column()]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 2 * j + i;
      r.x[at] = Pack::pack(Pack::first(r.x[at]) - f.x * sk.x[2 * at],
                           Pack::second(r.x[at]) - f.y * sk.x[2 * at + 1]);
    }
  }
  if (rows < 64) r.mask_columns_from(rows);
}

/// One state warpgroup's places in the rings. WHY few cursors: registers are scarce.
template <class C>
struct StateCursors {
  tile::RingCursor<C::kKSlots> k;
  tile::RingCursor<C::kQSlots> q;  ///< and the factors
  tile::RingCursor<C::kVSlots> v;  ///< and Tmat and P
  OutputPlace output;

  static_assert(C::kQSlots == C::kFactorSlots && C::kVSlots == C::kTmatSlots &&
                C::kVSlots == C::kPSlots);

  __device__ __forceinline__ explicit StateCursors(int half) : output(half) {}
};

/// Ends the products of the chunk at the cursors, of which only that of n and P may still be in
/// flight, and gives its tiles back.
template <class C>
__device__ __forceinline__ void finish_chunk(SharedMemoryPlan<C>& s, StateCursors<C>& at,
                                             Accumulator<64>& o, Operand<typename C::Io, 64>& n) {
  ptx::wgmma_wait<0>();
  tile::pin(o);
  tile::pin(n);
  __syncwarp();
  if (tile::is_first_lane()) {
    // SYNC k_ring.empty, factor_ring.empty, p_ring.empty: this warp's reads of them are over
    ptx::mbarrier_arrive(&s.k_ring.empty[at.k.slot]);
    ptx::mbarrier_arrive(&s.factor_ring.empty[at.q.slot]);
    if constexpr (C::kOutput) ptx::mbarrier_arrive(&s.p_ring.empty[at.v.slot]);
  }
  at.k.next();
  at.q.next();
  at.v.next();
}

/// First half of a chunk, from the state that enters it: R^T, packed, and S^T Qc^T in o. With
/// kDrain, o holds the output of the chunk before, which goes to the o tile under the first
/// product.
template <class C, bool kDrain>
__device__ __forceinline__ void read_state(SharedMemoryPlan<C>& s, StateCursors<C>& at,
                                           const WorkItem& item, int c, const Accumulator<C::kK>& S,
                                           Accumulator<64>& o, Operand<typename C::Io, 64>& r,
                                           Operand<typename C::Io, 64>& n) {
  Operand<typename C::Io, C::kK> state;
  Accumulator<64> sk;
  state.pack(S);
  if constexpr (kDrain) finish_chunk<C>(s, at, o, n);
  // SYNC k_ring.full: state warpgroups wait for k
  at.k.wait(s.k_ring);
  const auto turns = static_cast<uint32_t>(NamedBarrier::kTurnLow);
  if constexpr (C::kOutput) wait_for_store();
  // SYNC kTurnLow, kTurnHigh: a state warpgroup waits until the other has issued these products,
  // and until its own thread has waited for the store
  if constexpr (C::kStateGroups == 2) {
    ptx::named_barrier_sync(turns + at.output.half, 256);
  } else {
    ptx::named_barrier_sync(turns, 128);
  }
  ptx::wgmma_fence();
  issue_recall(sk, state, s.k[at.k.slot]);
  if constexpr (kDrain && C::kOutput) {
    Operand<typename C::Io, 64> packed;
    packed.pack(o);
    park_output(s, at.output, packed);
  }
  if constexpr (C::kOutput) {
    // SYNC q_ring.full: state warpgroups wait for q
    at.q.wait(s.q_ring);
    ptx::wgmma_fence();
    issue_recall(o, state, s.q[at.q.slot]);
  }
  // SYNC kTurnLow, kTurnHigh: the other state warpgroup's turn
  if constexpr (C::kStateGroups == 2) {
    ptx::named_barrier_arrive(turns + 1 - at.output.half, 256);
  }
  const uint32_t v_ready = at.v.ready(s.v_ring), factors_ready = at.q.ready(s.factor_ring);
  // SYNC v_ring.full: state warpgroups wait for v
  if (!v_ready) at.v.wait(s.v_ring);
  // SYNC factor_ring.full: state warpgroups wait for the factors
  if (!factors_ready) at.q.wait(s.factor_ring);
  ptx::wgmma_wait<0>();
  tile::pin(sk);
  tile::pin(o);
  tile::pin(state);
  residual(r, s.v[at.v.slot].address() + at.output.v_offset, sk, s.factors[at.q.slot].recall,
           item.rows(c));
  // SYNC q_ring.empty, v_ring.empty: this warp's reads of q and v are over
  if constexpr (C::kOutput) at.q.release(s.q_ring);
  at.v.release(s.v_ring);
}

/// Second half of a chunk: Nw and the state that leaves it. On return the product of n, which is Nw
/// packed, and P, whose sum is the chunk's output, may still be in flight.
template <class C>
__device__ __forceinline__ void write_state(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            StateCursors<C>& at, const WorkItem& item, int c,
                                            Accumulator<C::kK>& S, Accumulator<64>& o,
                                            Operand<typename C::Io, 64>& r,
                                            Operand<typename C::Io, 64>& n) {
  const FactorSlot& factors = s.factors[at.q.slot];
  Accumulator<64> nw;
  // SYNC tmat_ring.full: state warpgroups wait for Tmat
  at.v.wait(s.tmat_ring);
  tile::pin(r);
  ptx::wgmma_fence();
  issue_mix(nw, r, s.Tmat[at.v.slot], 0);
  const float decay = factors.decay;
  S.scale(decay);
  if constexpr (C::kOutput) o.scale_columns(factors.query);
  ptx::wgmma_wait<0>();
  tile::pin(nw);
  tile::pin(r);
  // SYNC tmat_ring.empty: this warp's reads of Tmat are over
  at.v.release(s.tmat_ring);
  if constexpr (C::kOutput) n.pack(nw);
  nw.scale_columns(factors.write);
  r.pack(nw);
  ptx::wgmma_fence();
  issue_update(S, r, s.k[at.k.slot]);
  if constexpr (C::kOutput) {
    // SYNC p_ring.full: state warpgroups wait for P
    at.v.wait(s.p_ring);
    ptx::wgmma_fence();
    issue_mix(o, n, s.P[at.v.slot], 1);
    if (c > item.skip) store_output<C>(p, s, at.output, item, c - 1);
    ptx::wgmma_wait<1>();
  } else {
    ptx::wgmma_wait<0>();
  }
  tile::pin(S);
}

/// One work item: the recurrence over its chunks, states in and out.
template <class C>
__device__ __forceinline__ void run_item(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                         StateCursors<C>& at, const WorkItem& item, int half,
                                         Accumulator<C::kK>& S, Accumulator<64>& o,
                                         Operand<typename C::Io, 64>& r) {
  Operand<typename C::Io, 64> n;
  load_entering<C>(p, item, half, S);
  const int chunks = item.chunks();
  if (chunks > 0) {
    read_state<C, false>(s, at, item, 0, S, o, r, n);
    // WHY halves of two chunks: a product in flight where a loop closes would be serialised. PERF
    // one copy of the second half: code that runs for the first time is fetched from memory.
    for (int c = 1;; ++c) {
      write_state<C>(p, s, at, item, c - 1, S, o, r, n);
      if (C::kOutput && p.checkpoints.data != nullptr) store_checkpoint(p, item, half, c - 1, S);
      if (c == chunks) break;
      read_state<C, true>(s, at, item, c, S, o, r, n);
    }
    finish_chunk<C>(s, at, o, n);
    if constexpr (C::kOutput) {
      r.pack(o);
      wait_for_store();
      ptx::named_barrier_sync(static_cast<uint32_t>(OutputBarrier::kParkLow) + half, 128);
      park_output(s, at.output, r);
      store_output<C>(p, s, at.output, item, chunks - 1);
    }
  }
  store_leaving<C>(p, item, half, S);
  if constexpr (C::kOutput) {
    if constexpr (device::kMayLead<C>) {
      if (item.sink == device::StateSink::kAdded) store_added(p, item, half, S);
    }
    wait_for_store();
  }
}

/// State warpgroup `half`.
template <class C>
__device__ __forceinline__ void state_role(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                           int half) {
  tile::RingCursor<C::kWorkSlots> work;
  StateCursors<C> at(half);
  Accumulator<C::kK> S;
  Accumulator<64> o;
  Operand<typename C::Io, 64> r;
  // SYNC kTurnLow: the first turn is the lower warpgroup's
  if (C::kStateGroups == 2 && half == 1)
    ptx::named_barrier_arrive(static_cast<uint32_t>(NamedBarrier::kTurnLow), 256);
  for (;; work.next()) {
    // SYNC work_ring.full: the state warpgroups wait for the next work item
    work.wait(s.work_ring);
    // WHY not a copy: the slot is kept until the item is done, which saves registers.
    const WorkItem& item = s.work[work.slot];
    if (!item.valid()) return;
    if (item.padded) {
      store_rows(p, item, 0, item.tokens, half, nullptr);
    } else {
      run_item<C>(p, s, at, item, half, S, o, r);
    }
    // SYNC work_ring.empty: the item is done
    work.release(s.work_ring);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_STATE_CUH_
