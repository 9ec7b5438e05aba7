// Finds which rows a warp of the channel-last kernel stores. They are computed as if they were of one
// sequence: an output never looks past its sequence's first W - 1 tokens, and those are the head's.
//
// WHY not sequence.cuh's search: this is most of what a short call waits for. A warp looks at 32
// offsets at once, and rows and sequences fit 32 bits (is_channel_last()).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_STORED_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_STORED_ROWS_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"

namespace sluice::cuda::conv1d {

/// A bit for each row of a block: rows of live sequences, and of padding, that are no head's.
struct StoredRows {
  uint32_t live, zero;
};

/// How many sequences begin at or before a row. Whole warps only.
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
/// @param span_of Span(int): of a row
template <class SpanOf>
__device__ __forceinline__ StoredRows stored_rows(const ConvParams& p, int64_t batch, int first,
                                                  int count, const SpanOf& span_of) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const bool marks = p.row_kinds != nullptr && blockIdx.x == 0 && threadIdx.x < 32;
  StoredRows rows{};
#pragma unroll 1
  for (int row = 0; row < count;) {
    const Span span = span_of(first + row);
    const auto begin = static_cast<int>(span.begin), end = static_cast<int>(span.end);
    const int to = min(max(end - first, row + 1), count);
    const int from = min(max(begin + kMaxWidth - 1 - first, row), to);
    const RowKind kind = kind_of(p, span.n);
    const uint32_t bits = (1u << to) - (1u << from);
    if (kind != kNobodys) (kind == kPadding ? rows.zero : rows.live) |= bits;
    if (marks && lane >= row && lane < to) p.row_kinds[batch * p.T + first + lane] = kind;
    row = to;
  }
  return rows;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_STORED_ROWS_CUH_
