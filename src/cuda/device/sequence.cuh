// Finds the rows of a sequence, and the slots its state comes from and goes to, by the rules of
// sluice.h on device data.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_SEQUENCE_CUH_
#define SLUICE_CUDA_DEVICE_SEQUENCE_CUH_

#include "cuda/device/load.cuh"
#include "cuda/device/views.h"

namespace sluice::cuda::device {

/// One sequence of a step.
struct Sequence {
  int64_t index, batch, row;  ///< rows row .. row + tokens - 1 of a batch entry
  int tokens;                 ///< at most max_tokens
  int64_t read;               ///< slot of `initial`; -1: zeros
  int64_t write;              ///< slot of `final` for the last state; -1: none
  bool padded;                ///< zero outputs, no state touched
};

/// Slot of sequence `seq` in a column of a table.
__device__ __forceinline__ int64_t slot_at(const SlotTable& table, int64_t seq, int64_t column) {
  if (table.rows.data == nullptr) return seq;
  const IndexVector flat{table.rows.data, 1, table.rows.is_64bit};
  return load_index(flat, seq * table.rows.stride + column * table.column_stride);
}

/// Whether a slot may be touched. Those past the pool are padding: a wrong index cannot reach other
/// memory.
__device__ __forceinline__ bool usable_slot(const StateSlots& s, const SlotTable& table,
                                            const BoundedPool& pool, int64_t slot) {
  return (table.rows.data == nullptr || slot >= s.pad_below) && slot < pool.slots;
}

/// Rows of a sequence, clamped to the tensors whatever cu_seqlens holds.
__device__ __forceinline__ void find_rows(const StepRows& rows, Sequence* s) {
  s->batch = s->index;
  s->row = 0;
  s->tokens = rows.max_tokens;
  if (rows.cu_seqlens.data == nullptr) return;
  const int64_t begin = min(max(load_index(rows.cu_seqlens, s->index), int64_t{0}), rows.T);
  const int64_t end = min(max(load_index(rows.cu_seqlens, s->index + 1), begin), rows.T);
  s->batch = 0;
  s->row = begin;
  s->tokens = static_cast<int>(min(end - begin, int64_t{rows.max_tokens}));
}

__device__ __forceinline__ bool starts_from_state(const StateSlots& s, int64_t seq) {
  return s.has_initial_state == nullptr || s.has_initial_state[seq * s.has_initial_stride] != 0;
}

/// What find_slots() reads, requested at once.
struct SlotEntries {
  int64_t read, write;
  bool has_initial;
};

__device__ __forceinline__ SlotEntries request_slots(const StateSlots& s, int64_t seq) {
  int64_t column = 0;
  if (s.num_accepted.data != nullptr) {
    const int64_t accepted = max(load_index(s.num_accepted, seq), int64_t{1});
    column = min(accepted, s.read_slots.columns) - 1;
  }
  return {slot_at(s.read_slots, seq, column), slot_at(s.write_slots, seq, 0),
          starts_from_state(s, seq)};
}

__device__ __forceinline__ void find_slots(const StateSlots& s, const SlotEntries& entries,
                                           Sequence* sequence) {
  const bool pooled = s.initial.pool.data != nullptr, kept = s.final.pool.data != nullptr;
  sequence->padded = s.read_slots.rows.data != nullptr &&
                     (entries.read < s.pad_below || (pooled && entries.read >= s.initial.slots));
  sequence->read = pooled && entries.has_initial && !sequence->padded ? entries.read : -1;
  const bool writes =
      kept && !sequence->padded && usable_slot(s, s.write_slots, s.final, entries.write);
  sequence->write = writes ? entries.write : -1;
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_SEQUENCE_CUH_
