// Bodies where channels are neighbours in memory: a thread has the channels of one pack and walks
// through a tile of tokens with the last W - 1 inputs in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// A thread's channels in one batch entry.
template <class Pack>
struct Column {
  const ChannelPart& part;
  int64_t x_at, out_at;  ///< elements of row 0
  Taps taps[Pack::kElements];

  __device__ __forceinline__ Pack load(int64_t row) const {
    return Pack::load(part.x, x_at + row * part.x.token_stride);
  }
  __device__ __forceinline__ void store(int64_t row, const float (&y)[Pack::kElements]) const {
    Pack::store(part.out, out_at + row * part.out.token_stride, y);
  }
};

/// The inputs before a token: x[i] of channel i, newest last.
template <class Pack>
struct Window {
  float x[Pack::kElements][kMaxWidth - 1];

  __device__ __forceinline__ void push(int i, float newest) {
    x[i][0] = x[i][1], x[i][1] = x[i][2], x[i][2] = newest;
  }
};

/// The W - 1 rows before `row`, all of its sequence.
template <class Pack>
__device__ __forceinline__ void fill_window(const ConvParams& p, const Column<Pack>& column,
                                            int64_t row, Window<Pack>& window) {
#pragma unroll
  for (int age = kMaxWidth - 1; age > 0; --age) {
    float x[Pack::kElements] = {};
    if (age < p.W) column.load(row - age).unpack(column.part.x.number, x);
#pragma unroll
    for (int i = 0; i < Pack::kElements; ++i) window.push(i, x[i]);
  }
}

/// Outputs of rows from .. to - 1, which have W - 1 rows of their sequence before them.
template <class Pack>
__device__ __forceinline__ void convolve_rows(const ConvParams& p, const Column<Pack>& column,
                                              int64_t from, int64_t to) {
  Window<Pack> window{};
  fill_window(p, column, from, window);
  for (int64_t row = from; row < to; row += Pack::kBatch) {
    Pack packs[Pack::kBatch] = {};
#pragma unroll
    for (int j = 0; j < Pack::kBatch; ++j) {
      if (row + j < to) packs[j] = column.load(row + j);
    }
#pragma unroll
    for (int j = 0; j < Pack::kBatch; ++j) {
      if (row + j >= to) break;
      float x[Pack::kElements], y[Pack::kElements];
      packs[j].unpack(column.part.x.number, x);
#pragma unroll
      for (int i = 0; i < Pack::kElements; ++i) {
        const float(&before)[kMaxWidth - 1] = window.x[i];
        y[i] = convolve(p, column.taps[i], before[0], before[1], before[2], x[i]);
        window.push(i, x[i]);
      }
      column.store(row + j, y);
    }
  }
}

template <class Pack>
__device__ __forceinline__ void zero_rows(const Column<Pack>& column, int64_t from, int64_t to) {
  const float zeros[Pack::kElements] = {};
  for (int64_t row = from; row < to; ++row) column.store(row, zeros);
}

/// Tells the norm of a layer what rows from .. to - 1 are.
__device__ __forceinline__ void mark_rows(const ConvParams& p, int64_t batch, int64_t from,
                                          int64_t to, RowKind kind) {
  for (int64_t row = from; row < to; ++row) p.row_kinds[batch * p.T + row] = kind;
}

/// Tile by tile of all channels: index = tile * channel_warps + the channels' warp.
template <class Pack>
__device__ __forceinline__ void rows_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t d = (index % p.channel_warps * 32 + lane) * Pack::kElements;
  if (d >= p.D) return;
  const int64_t tile = index / p.channel_warps, batch = tile / p.tiles;
  const int64_t first = tile % p.tiles * p.tile_tokens, last = min(first + p.tile_tokens, p.T);
  const ChannelPart& part = part_of(p, d);
  Column<Pack> column{part,
                      element_of(part.x, part.C, batch, d - part.first),
                      element_of(part.out, part.C, batch, d - part.first),
                      {}};
#pragma unroll
  for (int i = 0; i < Pack::kElements; ++i) column.taps[i] = load_taps(p, d + i);
  for (int64_t row = first; row < last;) {
    const Span span = span_at(p, batch, row);
    const int64_t to = min(max(span.end, row + 1), last);
    RowKind kind = kNobodys;
    if (span.n >= 0) {
      kind = is_padding(p, span.n) ? kPadding : kLive;
      const int64_t from = max(row, span.begin + p.W - 1);  // rows before it are the head's
      if (kind == kLive && from < to) convolve_rows(p, column, from, to);
      if (kind == kPadding) zero_rows(column, from, to);
    }
    if (p.row_kinds != nullptr && d == 0) mark_rows(p, batch, row, to, kind);
    row = to;
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_
