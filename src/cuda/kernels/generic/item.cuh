// Finds which sequence, head and columns a CTA has, and which slots its state comes from and
// goes to.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_ITEM_CUH_
#define SLUICE_CUDA_KERNELS_GENERIC_ITEM_CUH_

#include "cuda/device/sequence.cuh"
#include "cuda/kernels/generic/params.h"

namespace sluice::cuda::generic {

/// One sequence, value head, and slice of columns of V.
struct Item {
  int64_t seq, head, key_head, slice;
  int64_t batch, row, tokens;  ///< rows row .. row + tokens - 1 of a batch entry
  int64_t read;                ///< slot of `initial`; -1: zeros
  int64_t write;               ///< slot of `final` for the last state; -1: none
  bool padded;                 ///< zero outputs, no state touched
};

/// Whether a slot may be touched. Those past the pool are padding: a wrong index cannot reach other
/// memory.
__device__ __forceinline__ bool usable(const GenericParams& p, const SlotTable& table,
                                       const BoundedPool& pool, int64_t slot) {
  return (table.rows.data == nullptr || slot >= p.pad_below) && slot < pool.slots;
}

/// Rows of the item's sequence, clamped to the tensors whatever cu_seqlens holds.
__device__ __forceinline__ void find_rows(const GenericParams& p, Item* item) {
  item->batch = item->seq;
  item->row = 0;
  item->tokens = p.T;
  if (p.cu_seqlens.data == nullptr) return;
  const int64_t begin = min(max(device::load_index(p.cu_seqlens, item->seq), int64_t{0}), p.T);
  const int64_t end = min(max(device::load_index(p.cu_seqlens, item->seq + 1), begin), p.T);
  item->batch = 0;
  item->row = begin;
  item->tokens = min(end - begin, p.max_tokens);
}

__device__ __forceinline__ void find_slots(const GenericParams& p, Item* item) {
  item->read = item->write = -1;
  int64_t column = 0;
  if (p.num_accepted.data != nullptr) {
    const int64_t accepted = max(device::load_index(p.num_accepted, item->seq), int64_t{1});
    column = min(accepted, p.read_slots.columns) - 1;
  }
  const int64_t read = device::slot_at(p.read_slots, item->seq, column);
  const bool pooled = p.initial.pool.data != nullptr;
  item->padded = p.read_slots.rows.data != nullptr &&
                 (read < p.pad_below || (pooled && read >= p.initial.slots));
  if (item->padded) return;
  const bool has_initial =
      p.has_initial_state == nullptr || p.has_initial_state[item->seq * p.has_initial_stride] != 0;
  if (pooled && has_initial) item->read = read;
  if (p.final.pool.data == nullptr || !p.write_last) return;
  const int64_t write = device::slot_at(p.write_slots, item->seq, 0);
  if (usable(p, p.write_slots, p.final, write)) item->write = write;
}

/// Items of one head are adjacent, so that its slices share q and k in the L2.
__device__ __forceinline__ Item item_of(const GenericParams& p, int64_t index, int64_t slices) {
  Item item{};
  item.slice = index % slices;
  const int64_t unit = index / slices;
  item.head = unit % p.HV;
  item.seq = unit / p.HV;
  item.key_head = p.head_map_cyclic ? item.head % p.H : item.head / p.r;
  find_rows(p, &item);
  find_slots(p, &item);
  return item;
}

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_ITEM_CUH_
