// Runs chunk_o from given states on Hopper.
//
// Math      o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v), chunks of 64 tokens
// Roles     persistent grid, an item is 64 or 128 columns of one (chunk, head). Warpgroup 0: a warp
//           that loads, one that sums gates. The other two compute items by turns
// Pipeline  (arrows are slots of one mbarrier ring) loads, sums --> P = q k^T in registers,
//           o = q h, o += P v --> o tile --> copy engine
// Memory    SharedMemoryPlan: two slots of 80 KB at K = V = 128, of which one is always on its way
// Floor     docs/kernels/stages.md: bytes
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/instance.h"
#include "cuda/kernels/chunk_o/config.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_products.cuh"

namespace sluice::cuda::chunk_o {

/// An item and the chunk that it is of. Whole warps.
template <class C>
__device__ __forceinline__ Item item_at(const device::StageParams& p, int64_t number,
                                        device::Chunk* chunk) {
  const int64_t slices = p.V / C::kV;
  *chunk = device::chunk_of(p, number / slices / p.HV);
  return {chunk->tokens, static_cast<int32_t>(chunk->row), static_cast<int32_t>(chunk->batch),
          static_cast<int32_t>(number / slices % p.HV),
          static_cast<int32_t>(number % slices) * C::kV};
}

/// Loads q, k, v and h of an item; one thread.
template <class C>
__device__ __forceinline__ void load_item(const OutputParams& p, const Item& item, int64_t state,
                                          Slot<C>& to, uint64_t* full) {
  const int group = static_cast<int>(device::key_head(p.stage, item.head));
  const int block = item.column / 64;
  ptx::mbarrier_arrive_expect(full, uint32_t{sizeof(Slot<C>)});
  ptx::tma_load(to.q.bytes, &p.q, {0, item.row, 0, group, item.batch}, full);
  ptx::tma_load(to.k.bytes, &p.k, {0, item.row, 0, group, item.batch}, full);
  ptx::tma_load(to.h.bytes, &p.h, {0, 0, block, item.head, static_cast<int32_t>(state)}, full);
  ptx::tma_load(to.v.bytes, &p.v, {0, item.row, block, item.head, item.batch}, full);
}

/// Loading warp.
template <class C>
__device__ __forceinline__ void load_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kSlots> cursor;
  const bool first_lane = tile::is_first_lane();
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    device::Chunk chunk;
    const Item item = item_at<C>(p.stage, number, &chunk);
    if (item.tokens == 0) continue;
    const int64_t state =
        chunk.batch * p.h_per_batch + device::chunks_before(p.stage, chunk.seq) + chunk.number;
    if (first_lane) {
      // SYNC ring.empty: the warpgroup is done with the slot's previous item
      cursor.acquire(s.ring);
      s.item[cursor.slot] = item;
      // SYNC ring.full: the item is there, and completes when the copy engine has written
      load_item<C>(p, item, state, s.slots[cursor.slot], &s.ring.full[cursor.slot]);
    }
    cursor.next();
  }
  // One end for each warpgroup.
  for (int i = 0; i < C::kGroups; ++i) {
    if (first_lane) {
      cursor.acquire(s.ring);
      s.item[cursor.slot].tokens = 0;
      ptx::mbarrier_arrive(&s.ring.full[cursor.slot]);
    }
    cursor.next();
  }
}

/// Warp of gates. PERF gates of one item are on their way while it waits for a slot.
template <class C>
__device__ __forceinline__ void gate_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                          int64_t items) {
  tile::RingCursor<C::kSlots> cursor;
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    device::Chunk chunk;
    const Item item = item_at<C>(p.stage, number, &chunk);
    if (item.tokens == 0) continue;
    const device::LaneGates gates = device::request_gates(p.stage, chunk, item.head);
    // SYNC ring.empty: the warpgroup is done with the slot's previous item
    cursor.acquire(s.ring);
    device::put_sums(p.stage, gates, s.G[cursor.slot]);
    // SYNC ring.full: sums of gates are there
    cursor.commit(s.ring);
    cursor.next();
  }
  for (int i = 0; i < C::kGroups; ++i) {
    cursor.acquire(s.ring);
    cursor.commit(s.ring);
    cursor.next();
  }
}

/// Scores with decays and mask, as a left operand.
template <class Io>
__device__ __forceinline__ void decay_scores(tile::Operand<Io, 64>& P,
                                             const tile::Accumulator<64>& scores, const float* G) {
  const int row = tile::group_row();
  const float g_row[2] = {G[row], G[row + 8]};
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int column = 8 * t + tile::lane_column();
    const float2 g = *reinterpret_cast<const float2*>(&G[column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int difference = row + 8 * i - column;
      const float* const x = &scores.x[4 * t + 2 * i];
      // WHY a choice: above the diagonal the exponential may be infinite.
      const float first = difference >= 0 ? device::decay(g_row[i] - g.x) * x[0] : 0.0f;
      const float second = difference >= 1 ? device::decay(g_row[i] - g.y) * x[1] : 0.0f;
      P.x[2 * t + i] = tile::Packed<Io>::pack(first, second);
    }
  }
}

/// The tail of an item's o tile by hand.
template <class C>
__device__ __forceinline__ void store_tail(const device::TokenRows& o, const Item& item,
                                           const typename C::ValueTile& tile) {
  auto* const out =
      static_cast<uint16_t*>(o.data) + device::at(o, item.batch, item.row, item.head) + item.column;
  constexpr int kPieces = C::kV / 8;
  for (int i = tile::thread_of_group(); i < item.tokens * kPieces; i += 128) {
    const auto row = static_cast<uint32_t>(i / kPieces), piece = static_cast<uint32_t>(i % kPieces);
    const uint8_t* from =
        tile.bytes + piece / 8 * tile.kBlockBytes + tile::swizzled_piece(row, piece % 8);
    *reinterpret_cast<uint4*>(out + row * o.token_stride + 8 * piece) =
        *reinterpret_cast<const uint4*>(from);
  }
}

/// o from registers to memory, through the warpgroup's tile. `barrier`: of this warpgroup.
template <class C>
__device__ __forceinline__ void send_output(const OutputParams& p, const Item& item,
                                            typename C::ValueTile& tile,
                                            const tile::Accumulator<C::kV>& out, uint32_t barrier) {
  const bool first_thread = tile::is_first_of_group();
  if (first_thread) ptx::bulk_wait_read();
  // SYNC barrier: the store before has read the tile
  ptx::named_barrier_sync(barrier, 128);
  tile::put_rows(tile, out);
  ptx::fence_proxy_async();
  // SYNC barrier: the tile is written
  ptx::named_barrier_sync(barrier, 128);
  if (item.tokens < C::kChunk) {
    store_tail<C>(p.stage.o, item, tile);
  } else if (first_thread) {
    ptx::tma_store(&p.o, tile.bytes, {0, item.row, item.column / 64, item.head, item.batch});
    ptx::bulk_commit();
  }
}

/// One item, from its slot to o in registers.
template <class C>
__device__ __forceinline__ void compute(const OutputParams& p, Slot<C>& slot, const float* G,
                                        int tokens, uint32_t barrier,
                                        tile::Accumulator<C::kV>& out) {
  tile::Accumulator<64> scores;
  tile::Operand<typename C::Io, 64> P;
  ptx::wgmma_fence();
  tile::issue_product(scores, slot.q, slot.k);
  ptx::wgmma_commit();
  tile::issue_read(out, slot.q, slot.h);
  if (tokens < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    slot.v.zero_rows_from(tokens);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(barrier, 128);
  }
  ptx::wgmma_wait<1>();
  tile::pin(scores);
  decay_scores(P, scores, G);
  ptx::wgmma_wait<0>();
  tile::pin(out);
  const int row = tile::group_row();
  out.scale_rows(device::decay(G[row]), device::decay(G[row + 8]));
  ptx::wgmma_fence();
  tile::issue_update(out, P, slot.v);
  ptx::wgmma_wait<0>();
  tile::pin(out);
  tile::pin(P);
  out.scale(p.stage.scale);
}

/// Warpgroup `group` of those that compute.
template <class C>
__device__ __forceinline__ void compute_role(const OutputParams& p, SharedMemoryPlan<C>& s,
                                             int group) {
  const uint32_t barrier = 1 + static_cast<uint32_t>(group);
  tile::RingCursor<C::kSlots> cursor;
  tile::Accumulator<C::kV> out;
  for (int turn = 0;; turn ^= 1, cursor.next()) {
    if (turn != group) continue;
    // SYNC ring.full: the warpgroup waits for its item
    cursor.wait(s.ring);
    const Item item = s.item[cursor.slot];
    if (item.tokens == 0) break;
    compute<C>(p, s.slots[cursor.slot], s.G[cursor.slot], item.tokens, barrier, out);
    // SYNC ring.empty: this warp's reads of the slot are over
    cursor.release(s.ring);
    send_output<C>(p, item, s.o[group], out, barrier);
  }
  // The copy engine reads shared memory, which the CTA takes with it.
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
}

/// See the head of this file. Items are slots x heads x slices of V.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chunk_o_kernel(const __grid_constant__ OutputParams p, int64_t items) {
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.ring.init(2, 4);
    ptx::fence_mbarrier_init();
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.h, &p.o}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  device::follow();
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) load_role<C>(p, s, items);
    if (warp == 1) gate_role<C>(p, s, items);
  } else {
    ptx::increase_registers<C::kComputeRegisters>();
    compute_role<C>(p, s, warpgroup - 1);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_instance() noexcept {
  return {device::address_of(chunk_o_kernel<C>), sizeof(SharedMemoryPlan<C>), C::kThreads};
}

}  // namespace sluice::cuda::chunk_o

#endif  // SLUICE_CUDA_KERNELS_CHUNK_O_KERNEL_CUH_
