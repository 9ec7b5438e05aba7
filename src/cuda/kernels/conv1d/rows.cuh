// Bodies where channels are neighbours in memory: a thread has the channels of one pack and walks
// through a tile of tokens with the last W - 1 inputs in registers and kAhead loads in flight.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"
#include "cuda/ptx/address.cuh"

namespace sluice::cuda::conv1d {

/// Rows whose loads are in flight. BOUND: a multiple of kMaxWidth, so that the window's oldest
/// input does not move with the loop.
template <bool kUsual>
inline constexpr int kRowsAhead = kUsual ? 8 : 4;

/// Outputs of `count` rows from row `from` of the column on, which have W - 1 rows of their
/// sequence before them. PERF addresses move by strides; a row that is used makes room for the load
/// of the one kAhead later, so that loads are in flight all the time.
/// @tparam kUsual W = 4 with SiLU and without bias: models. WHY not asked for a row: branches and
/// the registers of a bias.
template <class Pack, bool kUsual>
__device__ __forceinline__ void convolve_rows(const ConvParams& p, Taps<Pack::kElements> taps,
                                              const Column& column, int from, int count) {
  if constexpr (kUsual) {
#pragma unroll
    for (int i = 0; i < Pack::kElements; ++i) taps.bias[i] = 0.0f;
  }
  constexpr int kAhead = kRowsAhead<kUsual>;
  const char* next = column.x + from * column.x_step;
  char* out = column.out + from * column.out_step;
  Pack ahead[kAhead] = {}, before[kMaxWidth] = {};
#pragma unroll
  for (int age = kMaxWidth - 1; age > 0; --age) {
    if (age < p.W) {
      before[kMaxWidth - age] = Pack::load(next - age * column.x_step, column.x_number);
    }
  }
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (j < count) ahead[j] = Pack::load(next, column.x_number);
    ptx::advance(next, column.x_step);
  }
  float window[kMaxWidth][Pack::kElements];  // row t in window[t % kMaxWidth]
#pragma unroll
  for (int j = 1; j < kMaxWidth; ++j) before[j].unpack(window[j]);
  for (int left = count; left > 0; left -= kAhead) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (j >= left) return;
      float y[Pack::kElements];
      ahead[j].unpack(window[j % 4]);
      if (j + kAhead < left) ahead[j] = Pack::load(next, column.x_number);
      ptx::advance(next, column.x_step);
      convolve<kUsual>(p, taps, window[(j + 1) % 4], window[(j + 2) % 4], window[(j + 3) % 4],
                       window[j % 4], y);
      Pack::store(out, column.out_number, y);
      ptx::advance(out, column.out_step);
    }
  }
}

template <class Pack>
__device__ __forceinline__ void zero_rows(const Column& column, int from, int to) {
  const float zeros[Pack::kElements] = {};
#pragma unroll 1
  for (int row = from; row < to; ++row) {
    Pack::store(column.out + row * column.out_step, column.out_number, zeros);
  }
}

/// A tile of rows: `count` from row `first` of a batch entry on.
struct Tile {
  int64_t batch, first;
  int count;
};

__device__ __forceinline__ Tile tile_of(const ConvParams& p, int64_t tile) {
  const int64_t batch = tile / p.tiles, first = (tile - batch * p.tiles) * p.tile_tokens;
  return {batch, first, static_cast<int>(min(int64_t{p.tile_tokens}, p.T - first))};
}

/// The rest of a tile from one of its rows on, as far as it is one sequence's or nobody's.
struct Run {
  int64_t n;  ///< the sequence
  int from;   ///< first row that is not the head's
  int to;
  RowKind kind;
};

__device__ __forceinline__ Run run_at(const ConvParams& p, const Tile& tile, int row,
                                      int64_t begun) {
  const Span span = span_at(p, tile.batch, tile.first + row, begun);
  const int64_t last = tile.count;
  const int64_t to = min(max(span.end - tile.first, row + int64_t{1}), last);
  const int64_t from = min(max(span.begin + p.W - 1 - tile.first, int64_t{row}), to);
  RowKind kind = kNobodys;
  if (span.n >= 0) kind = is_padding(p, span.n) ? kPadding : kLive;
  return {span.n, static_cast<int>(from), static_cast<int>(to), kind};
}

/// Tells the norm of a layer what the rows of a tile are, by `lanes` lanes.
__device__ __forceinline__ void mark_rows(const ConvParams& p, const Tile& tile, int lane,
                                          int lanes) {
  uint8_t* kinds = p.row_kinds + tile.batch * p.T + tile.first;
  for (int row = lane; row < tile.count; row += lanes) kinds[row] = run_at(p, tile, row, 0).kind;
}

/// Tile by tile of all channels: index = tile * channel_warps + the channels' warp.
template <class Pack>
__device__ __forceinline__ void rows_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t at = index / p.channel_warps, warp = index - at * p.channel_warps;
  const int64_t d = (warp * 32 + lane) * Pack::kElements;
  if (d >= p.D) return;
  const Tile tile = tile_of(p, at);
  if (p.row_kinds != nullptr && warp == 0) {
    mark_rows(p, tile, lane, static_cast<int>(min((p.D - 1) / Pack::kElements + 1, int64_t{32})));
  }
  const Taps<Pack::kElements> taps = load_taps<Pack::kElements>(p, d);
  Column column = column_of(p, tile.batch, d);
  column.x += tile.first * column.x_step;
  column.out += tile.first * column.out_step;
  const bool usual = p.W == kMaxWidth && p.silu && p.bias.data == nullptr;
  int64_t begun = 0;  // sequences before this one
#pragma unroll 1
  for (int row = 0; row < tile.count;) {
    const Run run = run_at(p, tile, row, begun);
    begun = max(run.n, begun);
    row = run.to;
    if (run.kind == kLive && run.from < run.to) {
      const int count = run.to - run.from;
      usual ? convolve_rows<Pack, true>(p, taps, column, run.from, count)
            : convolve_rows<Pack, false>(p, taps, column, run.from, count);
    }
    if (run.kind == kPadding) zero_rows<Pack>(column, run.from, run.to);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_ROWS_CUH_
