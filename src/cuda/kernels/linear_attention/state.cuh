// The state warpgroups: each keeps S^T for 64 columns of V in registers. As in chunk_forward
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

using device::OutputBarrier, device::OutputPlace, tile::pack_all;

/// One state warpgroup's places in the rings.
template <class C>
struct StateCursors {
  tile::RingCursor<C::kKStages> k;
  tile::RingCursor<C::kQStages> q;
  tile::RingCursor<C::kVStages> v;
  tile::RingCursor<C::kPStages> p;
  tile::RingCursor<C::kGateStages> gate;
  OutputPlace output;

  __device__ __forceinline__ explicit StateCursors(int half) : output(half) {}
};

/// Registers of a state warpgroup: accumulators, and packed left operands.
template <class C>
struct StateRegisters {
  float S[C::kK / 2], o[32];
  uint32_t state[C::kK / 4];  ///< S rounded
  uint32_t out[16];           ///< o of the chunk before, rounded
};

/// V^T of a chunk as a left operand; tokens at or past `rows` are zero. `v` is this lane's address
/// in the v tile.
__device__ __forceinline__ void load_values(uint32_t (&r)[16], uint32_t v, int rows) {
  const int lane2 = static_cast<int>(threadIdx.x & 3u) * 2;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    ptx::ldmatrix_x4_trans(r + 4 * j, v + static_cast<uint32_t>(j) * 2 * tile::kAtomBytes);
  }
  if (rows >= 64) return;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int left = rows - (8 * j + lane2);
    const uint32_t keep = left >= 2 ? ~0u : left == 1 ? 0xFFFFu : 0u;
    r[2 * j] &= keep;
    r[2 * j + 1] &= keep;
  }
}

/// w = r diag(write), rounded.
template <class C>
__device__ __forceinline__ void scale_values(uint32_t (&w)[16], const uint32_t (&r)[16],
                                             const float* write) {
  using Pack = tile::Packed<typename C::Io>;
  const int lane2 = static_cast<int>(threadIdx.x & 3u) * 2;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&write[8 * j + lane2]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t x = r[2 * j + i];
      w[2 * j + i] = Pack::pack(Pack::first(x) * f.x, Pack::second(x) * f.y);
    }
  }
}

/// The output of chunk c - 1, from registers to the o tile and on its way.
template <class C>
__device__ __forceinline__ void send_output(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                            const StateCursors<C>& at, const WorkItem& item, int c,
                                            const uint32_t (&out)[16]) {
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
  const float decay = s.gates[at.gate.stage].decay;
#pragma unroll
  for (int i = 0; i < C::kK / 2; ++i) x.S[i] *= decay;
}

/// The state that leaves a chunk: S^T += V^T diag(write) Kc, on its way. r is V^T.
template <class C>
__device__ __forceinline__ void update_state(SharedMemoryPlan<C>& s, StateCursors<C>& at, int rows,
                                             StateRegisters<C>& x, uint32_t (&r)[16],
                                             uint32_t (&w)[16]) {
  // SYNC v_ring.full: state warpgroups wait for v
  at.v.wait(s.v_ring);
  load_values(r, ptx::shared_address(s.v[at.v.stage]) + at.output.v_offset, rows);
  scale_values<C>(w, r, s.gates[at.gate.stage].write);
  // SYNC v_ring.empty: this warp's reads of v are over
  at.v.release(s.v_ring);
  at.v.next();
  // SYNC k_ring.full: state warpgroups wait for k; of a partial chunk for its zeroed tail
  at.k.wait(s.k_ring);
  if (C::kOutput && rows < C::kChunk) at.p.wait(s.p_ring);
  ptx::pin(w);
  ptx::wgmma_fence();
  tile::issue_update<C>(x.S, w,
                        tile::mn_major(ptx::shared_address(s.k[at.k.stage]), C::kHalfTileBytes));
}

/// One chunk: o = S^T Qc^T and P applied, S^T updated. On entry S is decayed by this chunk and
/// rounded as it was before; on return the same goes for the next one, and nothing is in flight.
template <class C>
__device__ __forceinline__ void run_chunk(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                          StateCursors<C>& at, const WorkItem& item, int c,
                                          int chunks, StateRegisters<C>& x) {
  uint32_t r[16], w[16];
  if constexpr (C::kOutput) {
    // SYNC q_ring.full: state warpgroups wait for q
    at.q.wait(s.q_ring);
    ptx::wgmma_fence();
    tile::issue_recall<C>(x.o, x.state, tile::k_major(ptx::shared_address(s.q[at.q.stage])));
    send_output<C>(p, s, at, item, c, x.out);
  }
  update_state<C>(s, at, item.rows(c), x, r, w);
  if constexpr (C::kOutput) {
    ptx::wgmma_wait<1>();
    ptx::pin(x.o);
    ptx::pin(x.state);
    // SYNC q_ring.empty: this warp's reads of q are over
    at.q.release(s.q_ring);
    at.q.next();
    tile::scale_columns(x.o, s.gates[at.gate.stage].query);
    // SYNC p_ring.full: state warpgroups wait for P
    at.p.wait(s.p_ring);
    ptx::wgmma_fence();
    tile::issue_mix<C>(x.o, r, tile::k_major(ptx::shared_address(s.P[at.p.stage])), 1);
  }
  ptx::wgmma_wait<C::kOutput ? 1 : 0>();
  ptx::pin(x.S);
  ptx::pin(w);
  // SYNC k_ring.empty, gate_ring.empty: this warp's reads of them are over
  at.k.release(s.k_ring);
  at.k.next();
  at.gate.release(s.gate_ring);
  at.gate.next();
  if constexpr (C::kOutput) {
    pack_all<C>(x.state, x.S);
    if (p.checkpoints.data != nullptr) {
      device::store_checkpoint(p, item, at.output.half, c, x.S);
    }
  }
  if (c + 1 < chunks) decay_state<C>(s, at, x);
  if constexpr (C::kOutput) {
    ptx::wgmma_wait<0>();
    ptx::pin(x.o);
    ptx::pin(r);
    // SYNC p_ring.empty: this warp's reads of P are over
    at.p.release(s.p_ring);
    at.p.next();
    pack_all<C>(x.out, x.o);
  }
}

/// The chunks of a work item, from the state that enters it in x.S; the state that leaves it, out.
template <class C>
__device__ __forceinline__ void run_chunks(const PrefillParams& p, SharedMemoryPlan<C>& s,
                                           StateCursors<C>& at, const WorkItem& item, int half,
                                           StateRegisters<C>& x) {
  if constexpr (C::kOutput) pack_all<C>(x.state, x.S);
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
    const WorkItem& item = s.work[work.stage];
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
