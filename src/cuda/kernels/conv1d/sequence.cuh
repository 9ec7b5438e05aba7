// Finds the sequence that a row belongs to, the slots of a sequence's states, and which rows of a block are
// stored.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_SEQUENCE_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_SEQUENCE_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

/// Rows begin .. end - 1 of a batch entry, which are sequence n; nobody's with n = -1.
struct Span {
  int64_t n, begin, end;
};

/// Offset n of the packed rows, within the tensors whatever cu_seqlens holds.
__device__ __forceinline__ int64_t offset_of(const ConvParams& p, int64_t n) {
  return min(max(device::load_index(p.cu_seqlens, n), int64_t{0}), p.T);
}

__device__ __forceinline__ Span rows_of(const ConvParams& p, int64_t n) {
  if (p.cu_seqlens.data == nullptr) return {n, 0, p.T};
  const int64_t begin = offset_of(p, n), end = offset_of(p, n + 1);
  return {n, begin, begin + min(max(end - begin, int64_t{0}), p.max_tokens)};
}

/// The span of a row of packed sequences, of which `begun` begin at or before it.
__device__ __forceinline__ Span span_after(const ConvParams& p, int64_t begun, int64_t row) {
  const int64_t next = begun < p.N ? offset_of(p, begun) : p.T;  // where the next sequence begins
  if (begun == 0) return {-1, 0, next};
  const Span span = rows_of(p, begun - 1);
  return row < span.end ? span : Span{-1, span.end, next};
}

/// The span that row `row` of a batch entry is in. WHY a search by each thread: uniform loads from
/// the L1, and no thread waits for another one. PERF three loads at once in each of log4(N) steps:
/// their latency is what a search costs.
__device__ __forceinline__ Span span_at(const ConvParams& p, int64_t batch, int64_t row) {
  if (p.cu_seqlens.data == nullptr) return {batch, 0, p.T};
  constexpr int kPivots = 3;
  int64_t low = 0, high = p.N;  // low .. high: how many sequences begin at or before the row
#pragma unroll 1
  while (low < high) {
    const int64_t step = ((high - low) >> 2) + 1;
    int64_t passed = 0;  // of the pivots low + step - 1, low + 2 step - 1, ..
#pragma unroll
    for (int i = 1; i <= kPivots; ++i) {
      const int64_t pivot = low + i * step - 1;
      if (pivot < high && device::load_index(p.cu_seqlens, pivot) <= row) passed = i * step;
    }
    low += passed;
    high = min(high, low + step - 1);
  }
  return span_after(p, low, row);
}

/// Slots past the pool are padding: a wrong index cannot reach other memory.
__device__ __forceinline__ bool is_padding(const ConvParams& p, int64_t n) {
  if (p.read_slots.data == nullptr) return false;
  const int64_t slot = device::load_index(p.read_slots, n);
  return slot < p.pad_below || (p.initial.data != nullptr && slot >= p.initial.slots);
}

/// What the rows of sequence n are.
__device__ __forceinline__ RowKind kind_of(const ConvParams& p, int64_t n) {
  return n < 0 ? RowKind::kNobodys : is_padding(p, n) ? RowKind::kPadding : RowKind::kLive;
}

/// Slot of `initial` to start from, of `final` for the last state; -1: zeros, none.
struct Slots {
  int64_t read, write;
};

/// For sequences that are no padding.
__device__ __forceinline__ Slots slots_of(const ConvParams& p, int64_t n) {
  Slots slots{-1, -1};
  const bool has_initial =
      p.has_initial_state == nullptr || p.has_initial_state[n * p.has_initial_stride] != 0;
  if (p.initial.data != nullptr && has_initial) {
    slots.read = p.read_slots.data == nullptr ? n : device::load_index(p.read_slots, n);
  }
  if (p.final.data == nullptr) return slots;
  if (p.write_slots.data == nullptr) {
    slots.write = n;
    return slots;
  }
  const int64_t write = device::load_index(p.write_slots, n);
  if (write >= p.pad_below && write < p.final.slots) slots.write = write;
  return slots;
}

/// The part that channel d belongs to.
__device__ __forceinline__ const ChannelPart& part_of(const ConvParams& p, int64_t d) {
  int which = 0;
  while (which + 1 < p.parts && d >= p.part[which + 1].first) ++which;
  return p.part[which];
}

/// Element of row 0 of a batch entry and channel `inside` of a part.
__device__ __forceinline__ int64_t element_of(const TokenChannels& t, int64_t C, int64_t batch,
                                              int64_t inside) {
  const int64_t group = inside / C;
  return batch * t.batch_stride + group * t.group_stride + (inside - group * C) * t.channel_stride;
}

__device__ __forceinline__ int64_t element_of(const ConvPool& pool, int64_t slot, int64_t d,
                                              int64_t column) {
  return slot * pool.slot_stride + d * pool.channel_stride + column * pool.column_stride;
}

/// A bit for each row of a block: rows of live sequences, and of padding, that are no head's. All are
/// computed as if they were of one sequence: an output never looks past its sequence's first W - 1
/// tokens, and those are the head's.
struct StoredRows {
  uint32_t live, zero;
};

/// How many sequences begin at or before a row. Whole warps only. WHY not span_at()'s search: this is
/// most of what a short call waits for. A warp looks at 32 offsets at once, and rows and sequences
/// fit 32 bits (fits_blocks()).
__device__ __forceinline__ int begun_at(const ConvParams& p, int row) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, high = static_cast<int>(p.N);
#pragma unroll 1
  while (low < high) {
    const int step = ((high - low) >> 5) + 1, pivot = low + step * (lane + 1) - 1;
    const bool passed = pivot < high && device::load_index(p.cu_seqlens, pivot) <= row;
    low += __popc(__ballot_sync(0xffffffffu, passed)) * step;
    high = min(high, low + step - 1);
  }
  return low;
}

/// Which of rows `first` .. `first` + `count` - 1 of a batch entry are stored; tells a layer's norm what
/// they are.
/// @tparam Layout whose span_of() finds the span of a row
template <class Layout>
__device__ __forceinline__ StoredRows stored_rows(const ConvParams& p, int64_t batch, int first,
                                                  int count) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const bool marks = p.row_kinds != nullptr && blockIdx.x == 0 && threadIdx.x < 32;
  StoredRows rows{};
#pragma unroll 1
  for (int row = 0; row < count;) {
    const Span span = Layout::span_of(p, batch, first + row);
    const auto begin = static_cast<int>(span.begin), end = static_cast<int>(span.end);
    const int to = min(max(end - first, row + 1), count);
    const int from = min(max(begin + kMaxWidth - 1 - first, row), to);
    const RowKind kind = kind_of(p, span.n);
    const uint32_t bits = (1u << to) - (1u << from);
    if (kind != RowKind::kNobodys) (kind == RowKind::kPadding ? rows.zero : rows.live) |= bits;
    if (marks && lane >= row && lane < to) p.row_kinds[batch * p.T + first + lane] = kind;
    row = to;
  }
  return rows;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_SEQUENCE_CUH_
