// Runs the loader of a prefill kernel, which deals out work items and requests their tiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_LOADER_CUH_
#define SLUICE_CUDA_DEVICE_LOADER_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/ptx/stream.cuh"
#include "cuda/tile/pipeline.cuh"

namespace sluice::cuda::device {

/// Brings the initial state of an item into the L2, ahead of the state warpgroups' plain loads.
__device__ __forceinline__ void prefetch_initial(const PrefillParams& p, const WorkItem& item) {
  if (p.initial.data == nullptr || p.has_initial_state != nullptr || item.padded ||
      item.column != 0 || item.source != StateSource::kInitial) {
    return;
  }
  const int64_t at = initial_at(p, item.seq, item.head);
  const uint32_t size = p.initial.number == Number::kFloat32 ? 4 : 2;
  const char* address = static_cast<const char*>(p.initial.data) + at * size;
  if (reinterpret_cast<uintptr_t>(address) % 16 == 0) {
    ptx::prefetch_l2(address, static_cast<uint32_t>(p.K * p.V) * size);
  }
}

/// Loader, one thread: deals the work items and requests k and q of every chunk. WHY not v: its
/// slots come back a chunk later, and would hold up k and q, which the aux warpgroup needs early.
/// Shared: the kernel's shared memory, with tiles k and q, work items and the rings of these.
template <class C, class Shared>
__device__ __forceinline__ void load_role(const PrefillParams& p, Shared& s) {
  tile::RingCursor<C::kWorkSlots> work;
  tile::RingCursor<C::kKSlots> k;
  tile::RingCursor<C::kQSlots> q;
  uint32_t ticket = first_ticket<C>(p);
  WorkItem item;
  do {
    item = item_of<C>(p, ticket);
    // SYNC work_ring.empty: all readers have copied the slot's previous item
    work.acquire(s.work_ring);
    s.work[work.slot] = item;
    // SYNC work_ring.full: the item is in the slot
    ptx::mbarrier_arrive(&s.work_ring.full[work.slot]);
    work.next();
    const int group = key_head(p, item.head);
    const int chunks = item.valid() ? item.chunks() : 0;
    if (item.valid()) prefetch_initial(p, item);
    const auto request_k = [&](int c) {
      const ptx::BoxOrigin at{0, item.row + c * C::kChunk, 0, group, item.batch};
      tile::load_tile(s.k[k.slot], &p.k, s.k_ring, k, at);
    };
    if (chunks > 0) request_k(0);
    for (int c = 0; c < chunks; ++c) {
      // WHY a chunk ahead of q: k is needed first and its slots come back last.
      if (c + 1 < chunks) request_k(c + 1);
      if constexpr (C::kOutput) {
        const ptx::BoxOrigin at{0, item.row + c * C::kChunk, 0, group, item.batch};
        tile::load_tile(s.q[q.slot], &p.q, s.q_ring, q, at);
      }
    }
    if (item.valid()) ticket = next_ticket<C>(p, ticket);
  } while (item.valid());
}

/// Requests v of chunk c; one thread. A factor's v is zero: it is asked for past the last
/// head, and the copy engine fills boxes outside the tensor with zeros.
template <class C, class Shared>
__device__ __forceinline__ void load_v(const PrefillParams& p, Shared& s,
                                       tile::RingCursor<C::kVSlots>& v, const WorkItem& item,
                                       int c) {
  const int head = !C::kOutput && item.sink == StateSink::kFactor ? p.HV : item.head;
  const ptx::BoxOrigin at{0, item.row + c * C::kChunk, item.column / 64, head, item.batch};
  tile::load_tile(s.v[v.slot], &p.v, s.v_ring, v, at);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_LOADER_CUH_
