// Runs the main and the transition pass of a prefill with key-wise gates.
//
// Math    per chunk, S the state entering it, all else from its record (key_prepare.cuh):
//         R = V - k~ S, Nw = Tmat R, O = q~ S + P Nw, S' = diag(e^{G_C}) S + k^^T Nw
//         In linear attention Nw = V.
// Roles   persistent grid, work items as those of kernel.cuh. Warp 0 brings records and v, two chunks
//         ahead; warpgroups 1, 2 have 64 columns of V each, S^T in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_KERNEL_CUH_

#include "cuda/device/loader.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/key_prepare.cuh"
#include "cuda/kernels/chunk_forward/key_state.cuh"

namespace sluice::cuda::chunk_forward {

/// Requests what the pass reads of a record, and v; one thread.
template <class C>
__device__ __forceinline__ void load_chunk(const PrefillParams& p, KeySharedMemory<C>& s,
                                           tile::RingCursor<C::kSlots>& at, const WorkItem& item,
                                           int c, const KeyRecord<C::kK>& record) {
  // SYNC ring.empty: all state warps are done with the slot's previous chunk
  at.acquire(s.ring);
  KeyChunkTiles<C>& to = s.tiles[at.slot];
  uint64_t* const full = &s.ring.full[at.slot];
  constexpr uint32_t kBytes = C::KeyTile::kBytes * (1 + C::kDelta + C::kOutput) +
                              C::SquareTile::kBytes * (C::kDelta + C::kOutput) +
                              C::ValueTile::kBytes + 4 * C::kK;
  // SYNC ring.full: completes when the copy engine has written all of the chunk
  ptx::mbarrier_arrive_expect(full, kBytes);
  const auto load = [&](void* tile, const auto& part) {
    ptx::bulk_load(tile, &part, sizeof(part), full);
  };
  if constexpr (C::kDelta) load(to.k.bytes, record.k);
  if constexpr (C::kOutput) load(to.q.bytes, record.q);
  // A factor's v is zero, as in load_v().
  const int head = !C::kOutput && item.sink == device::StateSink::kFactor ? p.HV : item.head;
  ptx::tma_load(to.v.bytes, &p.v, {0, item.row + c * C::kChunk, item.column / 64, head, item.batch},
                full);
  if constexpr (C::kDelta) load(to.Tmat.bytes, record.Tmat);
  load(to.decay, record.decay);
  load(to.k_late.bytes, record.k_late);
  if constexpr (C::kOutput) load(to.P.bytes, record.P);
  at.next();
}

/// Loader, one thread: deals the work items and requests their chunks.
template <class C>
__device__ __forceinline__ void key_load_role(const PrefillParams& p, KeySharedMemory<C>& s) {
  tile::RingCursor<C::kWorkSlots> work;
  tile::RingCursor<C::kSlots> at;
  uint32_t ticket = blockIdx.x;
  for (;;) {
    const WorkItem item = device::item_of<C>(p, ticket);
    // SYNC work_ring.empty: all readers are done with the slot's previous item
    work.acquire(s.work_ring);
    s.work[work.slot] = item;
    // SYNC work_ring.full: the item is in the slot
    ptx::mbarrier_arrive(&s.work_ring.full[work.slot]);
    work.next();
    if (!item.valid()) return;
    device::prefetch_initial(p, item);
    const int chunks = item.chunks();
    const int64_t first = first_record(p, item.seq) + item.first;
    for (int c = 0; c < chunks; ++c) {
      load_chunk<C>(p, s, at, item, c, *record_at<C::kK>(p, first + c, item.head));
    }
    ticket = device::next_ticket<C>(p, ticket);
  }
}

/// See the head of this file. Launch as chunk_forward_kernel().
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    key_forward_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<KeySharedMemory<C>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    s.ring.init(1, C::kStateWarps);
    s.work_ring.init(1, C::kStateWarps);
    ptx::fence_mbarrier_init();
  }
  if constexpr (!C::kOutput) ptx::launch_dependents();
  __syncthreads();
  ptx::wait_for_dependencies();
  if (!C::kOutput && device::SegmentView{p, device::kMayLead<C>}.transitions() == 0) return;
  if (C::kOutput && !device::takes_pass<C>(p)) return;
  const int warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    if constexpr (C::kStateGroups == 2) ptx::decrease_registers<C::kServiceRegisters>();
    if (threadIdx.x == 0) key_load_role<C>(p, s);
  } else {
    if constexpr (C::kStateGroups == 2) ptx::increase_registers<C::kStateRegisters>();
    key_state_role<C>(p, s, warpgroup - 1);
  }
}

template <class C>
Instance make_key_instance() noexcept {
  return {device::address_of(key_forward_kernel<C>), sizeof(KeySharedMemory<C>), C::kThreads};
}
template <class C>
Instance make_key_preparation() noexcept {
  static_assert(C::kResident * (sizeof(KeyPrepareMemory<C>) + 1024) <= 228 * 1024);
  return {device::address_of(key_prepare_kernel<C>), sizeof(KeyPrepareMemory<C>), C::kThreads};
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_KERNEL_CUH_
