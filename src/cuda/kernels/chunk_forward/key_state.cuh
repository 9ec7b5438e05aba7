// Runs the state warpgroups of a prefill with key-wise gates. As with scalar ones (state.cuh), but
// every factor of rows and columns is in the prepared tiles, and the state decays by channel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_STATE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_STATE_CUH_

#include "cuda/device/output_rows.cuh"
#include "cuda/device/state_io.cuh"
#include "cuda/kernels/chunk_forward/key_config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/products.cuh"

namespace sluice::cuda::chunk_forward {

using device::load_entering, device::OutputPlace, device::park_output, device::store_checkpoint;
using device::store_leaving, device::store_output, device::store_rows, device::wait_for_store;
using tile::Accumulator, tile::issue_mix, tile::issue_recall, tile::issue_update, tile::Operand;

/// What a state warpgroup holds: S^T, the output in hand, and R^T or Nw^T, packed.
template <class C>
struct KeyState {
  Accumulator<C::kK> S;
  Accumulator<64> o;
  Operand<typename C::Io, 64> n;
};

/// One state warpgroup's place in the ring of chunks.
template <class C>
struct KeyCursors {
  tile::RingCursor<C::kSlots> chunk;
  OutputPlace output;

  __device__ __forceinline__ explicit KeyCursors(int half) : output(half) {}
};

/// Ends the products of the chunk at the cursor and gives its tiles back.
template <class C>
__device__ __forceinline__ void finish_chunk(KeySharedMemory<C>& s, KeyCursors<C>& at,
                                             KeyState<C>& state) {
  ptx::wgmma_wait<0>();
  tile::pin(state.o);
  tile::pin(state.n);
  // SYNC ring.empty: this warp's reads of the chunk are over
  at.chunk.release(s.ring);
  at.chunk.next();
}

/// n = V^T - sk, or V^T, packed; columns at or past `rows` are zero.
template <class C>
__device__ __forceinline__ void residual(Operand<typename C::Io, 64>& n, uint32_t v,
                                         const Accumulator<64>& sk, int rows) {
  using Pack = tile::Packed<typename C::Io>;
  n.load_turned(v);
  if constexpr (C::kDelta) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      n.x[i] =
          Pack::pack(Pack::first(n.x[i]) - sk.x[2 * i], Pack::second(n.x[i]) - sk.x[2 * i + 1]);
    }
  }
  if (rows < 64) n.mask_columns_from(rows);
}

/// First half of a chunk: R^T in n and S^T q~^T in o. With kDrain, o holds the output of the chunk
/// before, which goes to the o tile under the first product.
template <class C, bool kDrain>
__device__ __forceinline__ void read_state(KeySharedMemory<C>& s, KeyCursors<C>& at,
                                           KeyState<C>& state, int rows) {
  Operand<typename C::Io, C::kK> packed;
  Accumulator<64> sk;
  packed.pack(state.S);
  if constexpr (kDrain) finish_chunk<C>(s, at, state);
  // SYNC ring.full: state warpgroups wait for the chunk's tiles
  at.chunk.wait(s.ring);
  const KeyChunkTiles<C>& tiles = s.tiles[at.chunk.slot];
  if constexpr (C::kOutput) {
    wait_for_store();
    // SYNC kParkLow, kParkHigh: the warpgroup waits until its thread has waited for the store
    ptx::named_barrier_sync(static_cast<uint32_t>(OutputBarrier::kParkLow) + at.output.half, 128);
  }
  if constexpr (C::kDelta) {
    ptx::wgmma_fence();
    issue_recall(sk, packed, tiles.k);
  }
  if constexpr (kDrain && C::kOutput) {
    Operand<typename C::Io, 64> o;
    o.pack(state.o);
    park_output(s, at.output, o);
  }
  if constexpr (C::kOutput) {
    ptx::wgmma_fence();
    issue_recall(state.o, packed, tiles.q);
  }
  if constexpr (C::kDelta && C::kOutput) {
    ptx::wgmma_wait<1>();
  } else {
    ptx::wgmma_wait<0>();
  }
  if constexpr (C::kDelta) tile::pin(sk);
  residual<C>(state.n, tiles.v.address() + at.output.v_offset, sk, rows);
  ptx::wgmma_wait<0>();
  tile::pin(state.o);
  tile::pin(packed);
}

/// Second half: Nw and the state that leaves the chunk. On return the product of n and P, whose sum
/// is the chunk's output, may still be in flight.
template <class C>
__device__ __forceinline__ void write_state(const PrefillParams& p, KeySharedMemory<C>& s,
                                            KeyCursors<C>& at, const WorkItem& item, int c,
                                            KeyState<C>& state) {
  const KeyChunkTiles<C>& tiles = s.tiles[at.chunk.slot];
  tile::pin(state.n);
  if constexpr (C::kDelta) {
    Accumulator<64> nw;
    ptx::wgmma_fence();
    issue_mix(nw, state.n, tiles.Tmat, 0);
    state.S.scale_columns(tiles.decay);
    ptx::wgmma_wait<0>();
    tile::pin(nw);
    tile::pin(state.n);
    state.n.pack(nw);
  } else {
    state.S.scale_columns(tiles.decay);
  }
  ptx::wgmma_fence();
  issue_update(state.S, state.n, tiles.k_late);
  if constexpr (C::kOutput) {
    ptx::wgmma_fence();
    issue_mix(state.o, state.n, tiles.P, 1);
    if (c > item.skip) store_output<C>(p, s, at.output, item, c - 1);
    ptx::wgmma_wait<1>();
  } else {
    ptx::wgmma_wait<0>();
  }
  tile::pin(state.S);
}

/// One work item: the recurrence over its chunks, states in and out.
template <class C>
__device__ __forceinline__ void run_item(const PrefillParams& p, KeySharedMemory<C>& s,
                                         KeyCursors<C>& at, const WorkItem& item, int half,
                                         KeyState<C>& state) {
  load_entering<C>(p, item, half, state.S);
  const int chunks = item.chunks();
  if (chunks > 0) {
    read_state<C, false>(s, at, state, item.rows(0));
    // WHY halves of two chunks: a product in flight where a loop closes would be serialised.
    for (int c = 1;; ++c) {
      write_state<C>(p, s, at, item, c - 1, state);
      if (C::kOutput && p.checkpoints.data != nullptr) {
        store_checkpoint(p, item, half, c - 1, state.S);
      }
      if (c == chunks) break;
      read_state<C, true>(s, at, state, item.rows(c));
    }
    finish_chunk<C>(s, at, state);
    if constexpr (C::kOutput) {
      state.n.pack(state.o);
      wait_for_store();
      // SYNC kParkLow, kParkHigh: as in read_state()
      ptx::named_barrier_sync(static_cast<uint32_t>(OutputBarrier::kParkLow) + half, 128);
      park_output(s, at.output, state.n);
      store_output<C>(p, s, at.output, item, chunks - 1);
    }
  }
  store_leaving<C>(p, item, half, state.S);
  if constexpr (C::kOutput) wait_for_store();
}

/// State warpgroup `half`.
template <class C>
__device__ __forceinline__ void key_state_role(const PrefillParams& p, KeySharedMemory<C>& s,
                                               int half) {
  tile::RingCursor<C::kWorkSlots> work;
  KeyCursors<C> at(half);
  KeyState<C> state;
  for (;; work.next()) {
    // SYNC work_ring.full: the state warpgroups wait for the next work item
    work.wait(s.work_ring);
    const WorkItem& item = s.work[work.slot];
    if (!item.valid()) return;
    if (item.padded) {
      store_rows(p, item, 0, item.tokens, half, nullptr);
    } else {
      run_item<C>(p, s, at, item, half, state);
    }
    // SYNC work_ring.empty: the item is done
    work.release(s.work_ring);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_STATE_CUH_
