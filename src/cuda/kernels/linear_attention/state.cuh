// Runs the state warpgroups: each keeps S^T for 64 columns of V in registers. As in chunk_forward
// everything is transposed, and what a product needs of another stays in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_STATE_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_STATE_CUH_

#include "cuda/device/output_rows.cuh"
#include "cuda/device/state_io.cuh"
#include "cuda/kernels/linear_attention/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/products.cuh"

namespace sluice::cuda::linear_attention {

using device::OutputBarrier, device::OutputPlace, tile::Operand;

/// One state warpgroup's places in the rings.
template <class C>
struct StateCursors {
  tile::RingCursor<C::kKSlots> k;
  tile::RingCursor<C::kQSlots> q;
  tile::RingCursor<C::kVSlots> v;
  tile::RingCursor<C::kPSlots> p;
  tile::RingCursor<C::kGateSlots> gate;
  OutputPlace output;

  __device__ __forceinline__ explicit StateCursors(int half) : output(half) {}
};

/// Registers of a state warpgroup: accumulators, and packed left operands.
template <class C>
struct StateRegisters {
  tile::Accumulator<C::kK> S;
  tile::Accumulator<64> o;
  Operand<typename C::Io, C::kK> state;  ///< S rounded
  Operand<typename C::Io, 64> out;       ///< o of the chunk before, rounded
};

/// V^T of a chunk as a left operand; tokens at or past `rows` are zero. `v` is this lane's address
/// in the v tile.
template <class Io>
__device__ __forceinline__ void load_values(Operand<Io, 64>& r, uint32_t v, int rows) {
  r.load_turned(v);
  if (rows < 64) r.mask_columns_from(rows);
}

/// w = r diag(write), rounded.
template <class Io>
__device__ __forceinline__ void scale_values(Operand<Io, 64>& w, const Operand<Io, 64>& r,
                                             const float* write) {
  using Pack = tile::Packed<Io>;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&write[8 * j + tile::lane_column()]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t x = r.x[2 * j + i];
      w.x[2 * j + i] = Pack::pack(Pack::first(x) * f.x, Pack::second(x) * f.y);
    }
  }
}

/// The output of chunk c - 1, from registers to the o tile and on its way.
template <class C>
__device__ __forceinline__ void send_output(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            const StateCursors<C>& at, const WorkItem& item, int c,
                                            const Operand<typename C::Io, 64>& out) {
  if (c <= item.skip) return;
  device::wait_for_store();
  // SYNC kParkLow, kParkHigh: the warpgroup's first thread has waited for the store before
  ptx::named_barrier_sync(static_cast<uint32_t>(OutputBarrier::kParkLow) + at.output.half, 128);
  device::park_output(s, at.output, out);
  device::store_output<C>(p, s, at.output, item, c - 1);
}

/// S *= e^{G_C} of the chunk at the cursors. WHY before the chunk's own products: this runs under
/// the last one of the chunk before.
template <class C>
__device__ __forceinline__ void decay_state(SharedMemoryPlan<C>& s, const StateCursors<C>& at,
                                            StateRegisters<C>& x) {
  // SYNC gate_ring.full: state warpgroups wait for the factors
  at.gate.wait(s.gate_ring);
  const float decay = s.gates[at.gate.slot].decay;
  x.S.scale(decay);
}

/// The state that leaves a chunk: S^T += V^T diag(write) Kc, on its way. r is V^T.
template <class C>
__device__ __forceinline__ void update_state(SharedMemoryPlan<C>& s, StateCursors<C>& at, int rows,
                                             StateRegisters<C>& x, Operand<typename C::Io, 64>& r,
                                             Operand<typename C::Io, 64>& w) {
  // SYNC v_ring.full: state warpgroups wait for v
  at.v.wait(s.v_ring);
  load_values(r, s.v[at.v.slot].address() + at.output.v_offset, rows);
  scale_values(w, r, s.gates[at.gate.slot].write);
  // WHY a fence: an arrival does not keep loads that are on their way before copies of the next v.
  ptx::fence_proxy_async();
  // SYNC v_ring.empty: this warp's reads of v are over
  at.v.release(s.v_ring);
  at.v.next();
  // SYNC k_ring.full: state warpgroups wait for k; of a partial chunk for its zeroed tail
  at.k.wait(s.k_ring);
  if (C::kOutput && rows < C::kChunk) at.p.wait(s.p_ring);
  tile::pin(w);
  ptx::wgmma_fence();
  tile::issue_update(x.S, w, s.k[at.k.slot]);
}

/// One chunk: o = S^T Qc^T and P applied, S^T updated. On entry S is decayed by this chunk and
/// rounded as it was before; on return the same goes for the next one, and nothing is in flight.
template <class C>
__device__ __forceinline__ void run_chunk(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                          StateCursors<C>& at, const WorkItem& item, int c,
                                          int chunks, StateRegisters<C>& x) {
  Operand<typename C::Io, 64> r, w;
  if constexpr (C::kOutput) {
    // SYNC q_ring.full: state warpgroups wait for q
    at.q.wait(s.q_ring);
    ptx::wgmma_fence();
    tile::issue_recall(x.o, x.state, s.q[at.q.slot]);
    send_output<C>(p, s, at, item, c, x.out);
  }
  update_state<C>(s, at, item.rows(c), x, r, w);
  if constexpr (C::kOutput) {
    ptx::wgmma_wait<1>();
    tile::pin(x.o);
    tile::pin(x.state);
    // SYNC q_ring.empty: this warp's reads of q are over
    at.q.release(s.q_ring);
    at.q.next();
    x.o.scale_columns(s.gates[at.gate.slot].query);
    // SYNC p_ring.full: state warpgroups wait for P
    at.p.wait(s.p_ring);
    ptx::wgmma_fence();
    tile::issue_mix(x.o, r, s.P[at.p.slot], 1);
  }
  ptx::wgmma_wait<C::kOutput ? 1 : 0>();
  tile::pin(x.S);
  tile::pin(w);
  // SYNC k_ring.empty, gate_ring.empty: this warp's reads of them are over
  at.k.release(s.k_ring);
  at.k.next();
  at.gate.release(s.gate_ring);
  at.gate.next();
  if constexpr (C::kOutput) {
    x.state.pack(x.S);
    if (p.checkpoints.data != nullptr) {
      device::store_checkpoint(p, item, at.output.half, c, x.S);
    }
  }
  if (c + 1 < chunks) decay_state<C>(s, at, x);
  if constexpr (C::kOutput) {
    ptx::wgmma_wait<0>();
    tile::pin(x.o);
    tile::pin(r);
    // SYNC p_ring.empty: this warp's reads of P are over
    at.p.release(s.p_ring);
    at.p.next();
    x.out.pack(x.o);
  }
}

/// The chunks of a work item, from the state that enters it in x.S; the state that leaves it, out.
template <class C>
__device__ __forceinline__ void run_chunks(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                           StateCursors<C>& at, const WorkItem& item, int half,
                                           StateRegisters<C>& x) {
  if constexpr (C::kOutput) x.state.pack(x.S);
  const int chunks = item.chunks();
  if (chunks > 0) decay_state<C>(s, at, x);
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) run_chunk<C>(p, s, at, item, c, chunks, x);
  if constexpr (C::kOutput) send_output<C>(p, s, at, item, chunks, x.out);
  device::store_leaving<C>(p, item, half, x.S);
  if constexpr (C::kOutput) device::wait_for_store();
}

/// One work item: the recurrence over its chunks, states in and out.
template <class C>
__device__ __forceinline__ void run_item(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                         StateCursors<C>& at, const WorkItem& item, int half,
                                         StateRegisters<C>& x) {
  device::load_entering<C>(p, item, half, x.S);
  run_chunks<C>(p, s, at, item, half, x);
}

/// State warpgroup `half`.
template <class C>
__device__ __forceinline__ void state_role(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                           int half) {
  tile::RingCursor<C::kWorkSlots> work;
  StateCursors<C> at(half);
  StateRegisters<C> x;
  for (;; work.next()) {
    // SYNC work_ring.full: the state warpgroups wait for the next work item
    work.wait(s.work_ring);
    // WHY not a copy: the slot is kept until the item is done, which saves registers.
    const WorkItem& item = s.work[work.slot];
    if (!item.valid()) return;
    if (item.padded) {
      device::store_rows(p, item, 0, item.tokens, half, nullptr);
    } else {
      run_item<C>(p, s, at, item, half, x);
    }
    // SYNC work_ring.empty: the item is done
    work.release(s.work_ring);
  }
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_STATE_CUH_
