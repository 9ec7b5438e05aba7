// Convolves with states in any form: a channel a thread, types, widths
// and strides as they come. The other kernels of this folder are for what models have.
//
// Math      out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]), inputs before the first token
//           from the state; the state afterwards as sluice.h has it for its form.
// Roles     a warp is one item. Heads, first: some channels of a sequence, its first W - 1 tokens,
//           which reach its old state, and the state after it. Then tiles of all later tokens,
//           through which a thread walks with the last W - 1 inputs in registers.
// Pipeline  eight rows of loads in flight a thread, one more for each that is used.
// Memory    registers.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// WHY heads make updates in place safe: a thread reads its channel's history before it writes, and
// no other thread reads or writes the channel in that slot (sluice.h: a slot that one sequence
// writes is no other one's). So no order of threads, warps or CTAs can change a bit, and nothing
// has to be waited for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// Inputs on their way. BOUND: a multiple of kMaxWidth, so that the window's oldest input does not
/// move with the loop.
inline constexpr int kRowsAhead = 8;

/// One channel of one sequence: inputs t, of which negative ones are its state's.
struct Channel {
  const ConvParams& p;
  const ChannelPart& part;
  int64_t n, d, tokens;
  int64_t x_at, out_at;  ///< elements of the first token
  Slots slots{-1, -1};

  __device__ __forceinline__ Channel(const ConvParams& params, int64_t batch, const Span& span,
                                     int64_t channel)
      : p(params),
        part(part_of(params, channel)),
        n(span.n),
        d(channel),
        tokens(span.end - span.begin) {
    const int64_t inside = d - part.first;
    x_at = element_of(part.x, part.C, batch, inside) + span.begin * part.x.token_stride;
    out_at = element_of(part.out, part.C, batch, inside) + span.begin * part.out.token_stride;
  }
  __device__ __forceinline__ float input(int64_t t) const {
    if (t >= 0) {
      return device::load_number(part.x.data, x_at + t * part.x.token_stride, part.x.number);
    }
    if (slots.read < 0) return 0.0f;
    const ConvPool& pool = p.initial;
    return device::load_written(pool.data, element_of(pool, slots.read, d, history_column(-t)),
                                pool.number);
  }
  /// Whether a window of drafted tokens is shifted. An empty sequence passes its whole state on.
  __device__ __forceinline__ bool speculative() const {
    return !p.ring && p.num_accepted.data != nullptr && tokens > 0;
  }
  __device__ __forceinline__ int64_t ring_column(int64_t t) const {
    const int64_t position = device::load_index(p.ring_position, n) + t;
    return (position % p.L + p.L) % p.L;
  }
  /// Column of the old state with the input `age` tokens before the first one.
  __device__ __forceinline__ int64_t history_column(int64_t age) const {
    if (p.ring) return ring_column(-age);
    if (!speculative()) return p.L - age;
    // BOUND: at most L-W+2, where the last column a+W-3 is column L-1.
    const int64_t accepted = max(device::load_index(p.num_accepted, n), int64_t{1});
    return min(accepted, static_cast<int64_t>(p.L - p.W + 2)) + p.W - 2 - age;
  }
};

/// Outputs of tokens first .. first + count - 1, which are zero in padding. PERF addresses move by
/// strides; a row that is used makes room for the load of the one kRowsAhead later.
__device__ __forceinline__ void convolve_tokens(const Channel& c, const Taps<1>& taps,
                                                int64_t first, int count, bool padding) {
  if (count <= 0) return;
  const TokenChannels &x = c.part.x, &out = c.part.out;
  int64_t x_at = c.x_at + first * x.token_stride, out_at = c.out_at + first * out.token_stride;
  float ahead[kRowsAhead] = {}, window[kMaxWidth][1] = {};  // token first + j in window[j % 4]
  const auto load = [&](int j, bool exists) {
    if (exists) ahead[j] = device::load_number(x.data, x_at, x.number);
    x_at += x.token_stride;
  };
#pragma unroll
  for (int age = kMaxWidth - 1; age > 0; --age) {
    if (age < c.p.W) window[kMaxWidth - age][0] = c.input(first - age);
  }
#pragma unroll
  for (int j = 0; j < kRowsAhead; ++j) load(j, j < count);
  for (int left = count; left > 0; left -= kRowsAhead) {
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      if (j >= left) return;
      float y[1];
      window[j % 4][0] = ahead[j];
      load(j, j + kRowsAhead < left);
      convolve(c.p, taps, window, j % 4, y);
      device::store_number(out.data, out_at, out.number, padding ? 0.0f : y[0]);
      out_at += out.token_stride;
    }
  }
}

/// The last inputs into the state: L of them, input t of a ring in column (position + t) mod L. Of
/// drafted tokens the W - 2 before the first and all of theirs, at the front; later columns stay.
/// Ascending order makes it safe in place: an old column is read before it is overwritten, since at
/// least one token is accepted.
__device__ __forceinline__ void write_state(const Channel& c) {
  const ConvParams& p = c.p;
  const ConvPool& pool = p.final;
  const bool in_place = c.slots.read == c.slots.write && p.initial.data == pool.data;
  if (c.slots.write < 0 || (c.tokens == 0 && in_place)) return;
  int64_t first = c.tokens - p.L, end = c.tokens;
  if (c.speculative()) {
    // BOUND: sluice.h asks for L >= W - 2 + tokens; whatever cu_seqlens holds, no column past L.
    first = 2 - p.W, end = min(end, p.L + first);
  }
  // Old columns of a ring in place are where they belong.
  for (int64_t t = p.ring && in_place ? max(first, int64_t{0}) : first; t < end; ++t) {
    const int64_t column = p.ring ? c.ring_column(t) : t - first;
    device::store_number(pool.data, element_of(pool, c.slots.write, c.d, column), pool.number,
                         c.input(t));
  }
}

/// The head of sequence n, of channel d.
__device__ __forceinline__ void head_item(const ConvParams& p, int64_t n, int64_t d) {
  Channel c(p, p.cu_seqlens.data == nullptr ? n : 0, rows_of(p, n), d);
  const auto count = static_cast<int>(min(c.tokens, static_cast<int64_t>(p.W - 1)));
  const bool padding = is_padding(p, n);
  if (!padding) c.slots = slots_of(p, n);
  convolve_tokens(c, load_taps(p, d), 0, count, padding);
  write_state(c);
}

/// Channel d of a tile of rows, as far as they are no head's. The first warp of channels tells the
/// norm of a layer what the rows are.
__device__ __forceinline__ void tile_item(const ConvParams& p, int64_t tile, int64_t d) {
  const int64_t batch = tile / p.tiles, first = (tile - batch * p.tiles) * p.tile_tokens;
  const auto count = static_cast<int>(min(int64_t{p.tile_tokens}, p.T - first));
  const Taps<1> taps = load_taps(p, d);
#pragma unroll 1
  for (int row = 0; row < count;) {
    const Span span = span_at(p, batch, first + row);
    const auto end = static_cast<int>(min(max(span.end - first, row + int64_t{1}), int64_t{count}));
    const RowKind kind = kind_of(p, span.n);
    if (p.row_kinds != nullptr && d < 32) {
      for (int64_t i = row + d; i < end; i += min(p.D, int64_t{32})) {
        p.row_kinds[batch * p.T + first + i] = kind;
      }
    }
    const Channel c(p, batch, span, d);
    const int64_t from = max(first + row - span.begin, static_cast<int64_t>(p.W - 1));
    const auto tokens = static_cast<int>(first + end - span.begin - from);
    if (kind != RowKind::kNobodys)
      convolve_tokens(c, taps, from, tokens, kind == RowKind::kPadding);
    row = end;
  }
}

/// Warps of heads, then of tiles; each p.channel_warps of channels.
/// @param p by value, in constant memory
__global__ void __launch_bounds__(kThreads, 5)
    any_form_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
#pragma unroll 1
  for (int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; index < p.warps;
       index += int64_t{gridDim.x} * kWarps) {
    const int64_t item = index / p.channel_warps;
    const int64_t d = (index - item * p.channel_warps) * 32 + threadIdx.x % 32;
    if (d >= p.D) continue;
    item < p.N ? head_item(p, item, d) : tile_item(p, item - p.N, d);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_ANY_FORM_CUH_
