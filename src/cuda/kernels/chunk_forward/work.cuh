// Work items: dealing them out, and small inputs that depend on the sequence or head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_WORK_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_WORK_CUH_

#include "cuda/device/load.cuh"
#include "cuda/kernels/chunk_forward/config.h"
#include "cuda/kernels/chunk_forward/params.h"

namespace sluice::cuda::chunk_forward {

using device::load_index, device::load_number;

/// Key head that value head h reads.
__device__ __forceinline__ int key_head(const ChunkForwardParams& p, int head) {
  return p.head_map_cyclic ? head % p.H : head / p.r;
}

/// Rows of sequence n, clamped to the tensors whatever cu_seqlens holds.
__device__ __forceinline__ WorkItem locate(const ChunkForwardParams& p, int seq, int head) {
  WorkItem item{seq, head, seq, 0, p.T, 0, 0};
  if (p.cu_seqlens.data != nullptr) {
    const int64_t begin = min(max(load_index(p.cu_seqlens, seq), int64_t{0}), int64_t{p.T});
    const int64_t end = min(max(load_index(p.cu_seqlens, seq + 1), begin), int64_t{p.T});
    item.batch = 0;
    item.row = static_cast<int32_t>(begin);
    item.tokens = static_cast<int32_t>(end - begin);
  }
  if (p.read_slots.data != nullptr && load_index(p.read_slots, seq) < p.pad_below) item.padded = 1;
  return item;
}

/// The item of a ticket; tickets of one sequence are adjacent so that its heads share k and q in
/// L2, and those of one head share everything but v.
template <class C>
__device__ __forceinline__ WorkItem item_of(const ChunkForwardParams& p, uint32_t ticket) {
  const auto slices = static_cast<uint32_t>(p.V / C::kV),
             per_sequence = static_cast<uint32_t>(p.HV) * slices;
  if (ticket >= static_cast<uint32_t>(p.N) * per_sequence) return WorkItem{-1, 0, 0, 0, 0, 0, 0};
  const int position = static_cast<int>(ticket / per_sequence);
  const uint32_t rest = ticket % per_sequence;
  WorkItem item =
      locate(p, p.order == nullptr ? position : p.order[position], static_cast<int>(rest / slices));
  item.column = static_cast<int32_t>(rest % slices) * C::kV;
  return item;
}

/// Tickets of one CTA: the first is its index, later ones are taken from the shared counter.
__device__ __forceinline__ uint32_t next_ticket(const ChunkForwardParams& p, uint32_t ticket) {
  return p.ticket == nullptr ? ticket + gridDim.x : gridDim.x + atomicAdd(p.ticket, 1u);
}

/// Reads the ring of work items, warp by warp.
template <class C>
struct WorkReader {
  SharedMemoryPlan<C>& s;
  tile::RingCursor<C::kWorkSlots> cursor;

  __device__ __forceinline__ explicit WorkReader(SharedMemoryPlan<C>& plan) : s(plan) {}

  __device__ __forceinline__ WorkItem next() {
    // SYNC work_ring.full: every warp but the loader's waits for the next work item
    cursor.wait(s.work_ring);
    const WorkItem item = s.work[cursor.stage];
    // SYNC work_ring.empty: the slot has been copied
    cursor.release(s.work_ring);
    cursor.next();
    return item;
  }
};

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_WORK_CUH_
