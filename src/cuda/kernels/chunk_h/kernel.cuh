// Runs chunk_h on Hopper: the chain of states.
//
// Math      h = S, v_new = u - w S, S <- exp(G_C) S + k^T diag(exp(G_C - G)) v_new, chunks of 64
//           tokens
// Roles     persistent grid, an item is 64 or 128 columns of V of one (sequence, head). Warpgroup
//           0: a warp that loads, three that make factors of chunks by turns. Each of the others
//           has S^T of 64 columns in registers: rows are columns of V, so that what one product
//           gives is the left operand of the next
// Pipeline  (arrows are slots of one mbarrier ring) k, w, u, factors --> S rounded -> w S while h
//           leaves -> v_new -> S += while v_new leaves
// Memory    SharedMemoryPlan: slots of 40 or 48 KB at K = 128, two tiles of h and of v_new: those
//           of one chunk leave while the next one's are written
// Floor     docs/kernels/stages.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_H_KERNEL_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/instance.h"
#include "cuda/kernels/chunk_h/items.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::chunk_h {

using device::StatePlace;

/// Loading warp.
template <class C>
__device__ __forceinline__ void load_role(const StatesParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kSlots> cursor;
  if (!tile::is_first_lane()) return;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const Item item = item_at<C>(p.stage, number);
    const int group = static_cast<int>(device::key_head(p.stage, item.head)),
              batch = static_cast<int>(item.sequence.batch);
    const int chunks = chunks_of(item);
    for (int c = 0; c < chunks; ++c, cursor.next()) {
      const auto row = static_cast<int32_t>(item.sequence.row) + c * C::kChunk;
      // SYNC ring.empty: the states are done with the slot's previous chunk
      cursor.acquire(s.ring);
      Slot<C>& to = s.slots[cursor.slot];
      uint64_t* const full = &s.ring.full[cursor.slot];
      // SYNC ring.full: completes when the copy engine has written
      ptx::mbarrier_arrive_expect(full, uint32_t{sizeof(Slot<C>)});
      ptx::tma_load(to.w.bytes, &p.w, {0, row, 0, item.head, batch}, full);
      for (int half = 0; half < C::kGroups; ++half) {
        ptx::tma_load(to.u.block(half), &p.u, {0, row, item.column / 64 + half, item.head, batch},
                      full);
      }
      ptx::tma_load(to.k.bytes, &p.k, {0, row, 0, group, batch}, full);
    }
  }
}

/// Factors of a chunk in the place of its sums of gates; one warp.
__device__ __forceinline__ void put_factors(const device::StageParams& p,
                                            const device::LaneGates& gates, Factors& f) {
  const int lane = tile::lane();
  device::put_sums(p, gates, f.write);
  __syncwarp();
  const float last = f.write[device::kMostTokens - 1];
  const float first = device::decay(last - f.write[lane]),
              second = device::decay(last - f.write[lane + 32]);
  __syncwarp();
  f.write[lane] = first, f.write[lane + 32] = second;
  if (lane == 0) f.decay = device::decay(last);
}

/// Warp `own` of those of gates. PERF three: a chunk is shorter than the latency of its gates.
template <class C>
__device__ __forceinline__ void gate_role(const StatesParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items, int own) {
  tile::RingCursor<C::kSlots> cursor;
  int turn = 0;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const Item item = item_at<C>(p.stage, number);
    const int chunks = chunks_of(item);
    for (int c = 0; c < chunks;
         ++c, cursor.next(), turn = turn == C::kGateWarps - 1 ? 0 : turn + 1) {
      if (turn != own) continue;
      device::Chunk chunk = item.sequence;
      const int done = c * C::kChunk;
      chunk.row += done;
      chunk.tokens = min(chunk.tokens - done, C::kChunk);
      const device::LaneGates gates = device::request_gates(p.stage, chunk, item.head);
      // SYNC ring.empty: the states are done with the slot's previous chunk
      cursor.acquire(s.ring);
      put_factors(p.stage, gates, s.factors[cursor.slot]);
      // SYNC ring.full: factors are there
      cursor.commit(s.ring);
    }
  }
}

/// v_new^T of a chunk in the place of u^T, rounded, and with exp(G_C - G), whose columns past the
/// end are zero.
template <class Io>
__device__ __forceinline__ void correct_values(tile::Operand<Io, 64>& r, tile::Operand<Io, 64>& n,
                                               const tile::Accumulator<64>& ws, const float* write,
                                               int rows) {
  using Pack = tile::Packed<Io>;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&write[8 * j + tile::lane_column()]);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      const float x = Pack::first(r.x[at]) - ws.x[2 * at],
                  y = Pack::second(r.x[at]) - ws.x[2 * at + 1];
      r.x[at] = Pack::pack(x, y);
      n.x[at] = Pack::pack(x * f.x, y * f.y);
    }
  }
  if (rows < 64) n.mask_columns_from(rows);
}

/// One chunk, whose operands are at the cursor; S becomes the state that leaves it.
template <class C>
__device__ __forceinline__ void run_chunk(const StatesParams& p, SharedMemoryPlan<C>& s,
                                          const Place& place, const Item& item, int c,
                                          int64_t state, int slot, tile::Accumulator<C::kK>& S) {
  Slot<C>& from = s.slots[slot];
  const Factors& factors = s.factors[slot];
  const int rows = min(item.sequence.tokens - c * C::kChunk, C::kChunk);
  tile::Operand<typename C::Io, C::kK> left;
  tile::Operand<typename C::Io, 64> r, n;
  tile::Accumulator<64> ws;
  left.pack(S);
  if (rows < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    from.k.zero_rows_from(rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tail is zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = factors.decay;
  ptx::wgmma_fence();
  tile::issue_recall(ws, left, from.w);
  // WHY h and v_new wanted or not: branches here make ptxas wait for the products.
  left.store_turned(s.h[place.half][place.turn].address() + place.offset);
  r.load_turned(from.u.address() + place.half * from.u.kBlockBytes + place.offset);
  ptx::wgmma_wait<0>();
  tile::pin(ws);
  tile::pin(left);
  S.scale(decay);
  correct_values(r, n, ws, factors.write, rows);
  tile::pin(n);
  ptx::wgmma_fence();
  tile::issue_update(S, n, from.k);
  r.store_turned(s.v_new[place.half][place.turn].address() + place.offset);
  send<C>(p, s, place, item, c, state, rows);
  ptx::wgmma_wait<0>();
  tile::pin(S);
  tile::pin(n);
}

/// Calls use(data, place) with a slot's state as an array of its type.
template <class C, class Use>
__device__ __forceinline__ void with_state(const device::StageParams& p,
                                           const device::StatePool& pool, int64_t slot,
                                           const Item& item, int half, const Use& use) {
  const StatePlace place(static_cast<int>(p.K), static_cast<int>(p.V), p.row_step == 1,
                         item.column + 64 * half);
  const int64_t at = slot * pool.slot_stride + item.head * p.K * p.V + place.origin;
  if (pool.number == device::Number::kFloat32) {
    use(static_cast<float*>(pool.data) + at, place);
  } else if (pool.number == device::Number::kBfloat16) {
    use(static_cast<__nv_bfloat16*>(pool.data) + at, place);
  } else {
    use(static_cast<__half*>(pool.data) + at, place);
  }
}

/// Outputs of a padded sequence.
template <class C>
__device__ __forceinline__ void zero_item(const StatesParams& p, const Item& item, int64_t state,
                                          int half) {
  const int column = item.column + 64 * half;
  if (p.stage.v_new.data != nullptr) {
    store_values(p.stage.v_new, item, column, 0, item.sequence.tokens, nullptr);
  }
  if (p.stage.h.data == nullptr) return;
  device::TokenRows rows{p.stage.h.data, p.stage.h.chunk_stride, p.stage.V, p.stage.h.head_stride,
                         p.stage.h.number};
  const int64_t room = p.stage.h.room - (state - item.sequence.batch * p.h_per_batch);
  for (int c = 0; c * C::kChunk < item.sequence.tokens && c < room; ++c) {
    Item as_rows = item;
    as_rows.sequence.batch = state + c, as_rows.sequence.row = 0;
    store_values(rows, as_rows, column, 0, C::kK, nullptr);
  }
}

/// Warpgroup `half` of states.
template <class C>
__device__ __forceinline__ void state_role(const StatesParams& p, SharedMemoryPlan<C>& s,
                                           int64_t items, int half) {
  tile::RingCursor<C::kSlots> cursor;
  Place place{half, 1 + static_cast<uint32_t>(half), tile::turned_piece()};
  tile::Accumulator<C::kK> S;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const Item item = item_at<C>(p.stage, number);
    const int64_t before =
        p.stage.h.data != nullptr ? device::chunks_before(p.stage, item.sequence.seq) : 0;
    const int64_t state = item.sequence.batch * p.h_per_batch + before;
    if (item.padded) {
      zero_item<C>(p, item, state, half);
      continue;
    }
    S.clear();
    if (item.read >= 0) {
      with_state<C>(
          p.stage, p.stage.state.initial.pool, item.read, item, half,
          [&](const auto* data, const StatePlace& at) { device::load_elements(data, at, S); });
    }
    const int chunks = chunks_of(item);
#pragma unroll 1
    for (int c = 0; c < chunks; ++c, cursor.next()) {
      // SYNC ring.full: the states wait for the chunk
      cursor.wait(s.ring);
      run_chunk<C>(p, s, place, item, c, state + c, cursor.slot, S);
      // SYNC ring.empty: this warp's reads of the slot are over
      cursor.release(s.ring);
      place.turn ^= 1;
    }
    if (item.write < 0) continue;
    with_state<C>(p.stage, p.stage.state.final.pool, item.write, item, half,
                  [&](auto* data, const StatePlace& at) { device::store_elements(data, at, S); });
  }
  // The copy engine reads shared memory, which the CTA takes with it.
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
}

/// See the head of this file. Items are sequences x heads x slices of V.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chunk_h_kernel(const __grid_constant__ StatesParams p, int64_t items) {
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.ring.init(2, 4 * C::kGroups);
    ptx::fence_mbarrier_init();
    for (const CUtensorMap* map : {&p.w, &p.u, &p.k}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  device::follow();
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    if constexpr (C::kGroups > 1) ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) {
      load_role<C>(p, s, items);
    } else if (warp <= C::kGateWarps) {
      gate_role<C>(p, s, items, warp - 1);
    }
  } else {
    if constexpr (C::kGroups > 1) ptx::increase_registers<C::kStateRegisters>();
    state_role<C>(p, s, items, warpgroup - 1);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_instance() noexcept {
  return {device::address_of(chunk_h_kernel<C>), sizeof(SharedMemoryPlan<C>), C::kThreads};
}

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_KERNEL_CUH_
