// Convolves with states in any form: a channel a thread, types, widths
// and strides as they come. The other kernels of this folder are for what models have.
//
// Math      out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]), inputs before the first token
//           from the state; the state afterwards as sluice.h has it for its form.
// Roles     a warp is one item. Heads, first (head.cuh): some channels of a sequence, its first
//           W - 1 tokens and its state. Then tiles of all later tokens, through which a thread walks
//           with the last W - 1 inputs in registers.
// Pipeline  eight rows of loads in flight a thread, one more for each that is used.
// Memory    registers.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/head.cuh"
#include "cuda/ptx/address.cuh"

namespace sluice::cuda::conv1d {

/// Inputs on their way. BOUND: a multiple of kMaxWidth, so that the window's oldest input does not
/// move with the loop.
inline constexpr int kRowsAhead = 8;

/// Outputs of `count` rows from row `from` of the column on, which have W - 1 rows of their
/// sequence before them. PERF addresses move by strides; a row that is used makes room for the load
/// of the one kRowsAhead later.
__device__ __forceinline__ void convolve_rows(const ConvParams& p, const Taps<1>& taps,
                                              const Column& column, int from, int count) {
  const char* next = column.x + from * column.x_step;
  char* out = column.out + from * column.out_step;
  float ahead[kRowsAhead] = {}, window[kMaxWidth][1] = {};  // row t in window[t % kMaxWidth]
#pragma unroll
  for (int age = kMaxWidth - 1; age > 0; --age) {
    if (age >= p.W) continue;
    window[kMaxWidth - age][0] =
        device::load_number(next - age * column.x_step, 0, column.x_number);
  }
#pragma unroll
  for (int j = 0; j < kRowsAhead; ++j) {
    if (j < count) ahead[j] = device::load_number(next, 0, column.x_number);
    ptx::advance(next, column.x_step);
  }
  for (int left = count; left > 0; left -= kRowsAhead) {
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      if (j >= left) return;
      float y[1];
      window[j % 4][0] = ahead[j];
      if (j + kRowsAhead < left) ahead[j] = device::load_number(next, 0, column.x_number);
      ptx::advance(next, column.x_step);
      convolve(p, taps, window[(j + 1) % 4], window[(j + 2) % 4], window[(j + 3) % 4],
               window[j % 4], y);
      device::store_number(out, 0, column.out_number, y[0]);
      ptx::advance(out, column.out_step);
    }
  }
}

__device__ __forceinline__ void zero_rows(const Column& column, int from, int to) {
#pragma unroll 1
  for (int row = from; row < to; ++row) {
    device::store_number(column.out + row * column.out_step, 0, column.out_number, 0.0f);
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
__device__ __forceinline__ void rows_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t at = index / p.channel_warps, warp = index - at * p.channel_warps;
  const int64_t d = warp * 32 + lane;
  if (d >= p.D) return;
  const Tile tile = tile_of(p, at);
  if (p.row_kinds != nullptr && warp == 0) {
    mark_rows(p, tile, lane, static_cast<int>(min(p.D, int64_t{32})));
  }
  const Taps<1> taps = load_taps(p, d);
  Column column = column_of(p, tile.batch, d);
  column.x += tile.first * column.x_step;
  column.out += tile.first * column.out_step;
  int64_t begun = 0;  // sequences before this one
#pragma unroll 1
  for (int row = 0; row < tile.count;) {
    const Run run = run_at(p, tile, row, begun);
    begun = max(run.n, begun);
    row = run.to;
    if (run.kind == kLive && run.from < run.to) {
      convolve_rows(p, taps, column, run.from, run.to - run.from);
    }
    if (run.kind == kPadding) zero_rows(column, run.from, run.to);
  }
}

/// CTAs a multiprocessor that the registers must allow.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kAnyFormCtas = 4;  // WHY: compiled for Blackwell, it needs more registers
#else
inline constexpr int kAnyFormCtas = 5;
#endif

/// @param p by value, in constant memory
__global__ void __launch_bounds__(kThreads, kAnyFormCtas)
    any_form_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; index < p.warps;
       index += int64_t{gridDim.x} * kWarps) {
    index < p.heads ? head_items(p, index, lane) : rows_item(p, index - p.heads, lane);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_
