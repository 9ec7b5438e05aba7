// Convolves heads: a sequence's first W - 1 tokens, which reach its state, and the state after the
// sequence. One thread does both for a channel, and nobody else touches that channel's state.
//
// WHY that makes updates in place safe: a thread reads its channel's history before it writes, and
// no other thread reads or writes the channel in that slot (sluice.h: a slot that one sequence
// writes is no other one's). So no order of threads, warps or CTAs can change a bit, and nothing
// has to be waited for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_HEAD_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_HEAD_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// One channel of one sequence.
struct Head {
  const ConvParams& p;
  const ChannelPart& part;
  int64_t n, d, tokens;
  int64_t x_at, out_at;  ///< elements of the first token
  Slots slots;

  __device__ __forceinline__ float input(int64_t t) const {
    return device::load_number(part.x.data, x_at + t * part.x.token_stride, part.x.number);
  }
  __device__ __forceinline__ void output(int64_t t, float value) const {
    device::store_number(part.out.data, out_at + t * part.out.token_stride, part.out.number, value);
  }
  /// Column of the state that the sequence starts from.
  __device__ __forceinline__ float old_column(int64_t column) const {
    if (slots.read < 0) return 0.0f;
    const ConvPool& pool = p.initial;
    return device::load_written(
        pool.data,
        slots.read * pool.slot_stride + d * pool.channel_stride + column * pool.column_stride,
        pool.number);
  }
  __device__ __forceinline__ void new_column(int64_t column, float value) const {
    const ConvPool& pool = p.final;
    device::store_number(
        pool.data,
        slots.write * pool.slot_stride + d * pool.channel_stride + column * pool.column_stride,
        pool.number, value);
  }
  /// Whether old and new columns are the same memory.
  __device__ __forceinline__ bool in_place() const {
    return slots.read == slots.write && p.initial.data == p.final.data;
  }
  /// a = max(num_accepted, 1). BOUND: at most L-W+2, where its last column a+W-3 is column L-1.
  __device__ __forceinline__ int64_t accepted() const {
    const int64_t accepted = max(device::load_index(p.num_accepted, n), int64_t{1});
    return min(accepted, static_cast<int64_t>(p.L - p.W + 2));
  }
  __device__ __forceinline__ int64_t ring_column(int64_t position) const {
    return (position % p.L + p.L) % p.L;
  }
  /// Column of the old state with the input `age` tokens before the first one, age 1 .. W-1.
  __device__ __forceinline__ int64_t history_column(int64_t age) const {
    if (p.ring) return ring_column(device::load_index(p.ring_position, n) - age);
    if (p.num_accepted.data != nullptr) return accepted() + p.W - 2 - age;
    return p.L - age;
  }
};

/// All columns carried over, then input t in column (position + t) mod L, the last L inputs
/// winning.
__device__ __forceinline__ void write_ring(const Head& h) {
  for (int64_t column = 0; column < h.p.L && !h.in_place(); ++column) {
    h.new_column(column, h.old_column(column));
  }
  const int64_t position = device::load_index(h.p.ring_position, h.n);
  for (int64_t t = max(h.tokens - h.p.L, int64_t{0}); t < h.tokens; ++t) {
    h.new_column(h.ring_column(position + t), h.input(t));
  }
}

/// Columns (old a .. a+W-3, the inputs) at the front; later ones stay. An old column is read before
/// it is overwritten, since a >= 1.
__device__ __forceinline__ void write_accepted(const Head& h) {
  const int64_t kept = h.p.W - 2, first = h.accepted();
  for (int64_t column = 0; column < kept; ++column) {
    h.new_column(column, h.old_column(first + column));
  }
  // BOUND: sluice.h asks for L >= W - 2 + tokens; whatever cu_seqlens holds, no column past L.
  const int64_t count = min(h.tokens, h.p.L - kept);
  for (int64_t t = 0; t < count; ++t) h.new_column(kept + t, h.input(t));
}

/// The last L columns of (old state, inputs). Ascending order makes it safe in place.
__device__ __forceinline__ void write_shifted(const Head& h) {
  for (int64_t column = 0; column < h.p.L; ++column) {
    const int64_t source = column + h.tokens;
    h.new_column(column, source < h.p.L ? h.old_column(source) : h.input(source - h.p.L));
  }
}

/// Outputs of the first W - 1 tokens; before[3 - age] is the input `age` tokens before the first.
__device__ __forceinline__ void convolve_head(const Head& h, const float (&before)[kMaxWidth - 1]) {
  const Taps<1> taps = load_taps(h.p, h.d);
  const int64_t count = min(h.tokens, static_cast<int64_t>(h.p.W - 1));
  float x[kMaxWidth][1] = {{before[0]}, {before[1]}, {before[2]}, {}}, y[1];
  for (int64_t t = 0; t < count; ++t) {
    x[3][0] = h.input(t);
    convolve(h.p, taps, x[0], x[1], x[2], x[3], y);
    h.output(t, y[0]);
    x[0][0] = x[1][0], x[1][0] = x[2][0], x[2][0] = x[3][0];
  }
}

/// Sequence n, channel d.
__device__ __forceinline__ void head_item(const ConvParams& p, int64_t n, int64_t d) {
  const ChannelPart& part = part_of(p, d);
  const Span span = rows_of(p, n);
  const int64_t batch = p.cu_seqlens.data == nullptr ? n : 0, inside = d - part.first;
  Head h{p, part, n, d, span.end - span.begin, 0, 0, {-1, -1}};
  h.x_at = element_of(part.x, part.C, batch, inside) + span.begin * part.x.token_stride;
  h.out_at = element_of(part.out, part.C, batch, inside) + span.begin * part.out.token_stride;
  if (is_padding(p, n)) {
    const int64_t count = min(h.tokens, static_cast<int64_t>(p.W - 1));
    for (int64_t t = 0; t < count; ++t) h.output(t, 0.0f);
    return;
  }
  h.slots = slots_of(p, n);
  const bool speculative = p.num_accepted.data != nullptr;
  float before[kMaxWidth - 1] = {};
#pragma unroll
  for (int age = 1; age < kMaxWidth; ++age) {
    const bool read = h.slots.read >= 0 && age < p.W;
    if (read) before[kMaxWidth - 1 - age] = h.old_column(h.history_column(age));
  }
  convolve_head(h, before);
  if (h.slots.write < 0 || (h.tokens == 0 && h.in_place())) return;
  if (p.ring) {
    write_ring(h);
  } else if (speculative && h.tokens > 0) {
    write_accepted(h);
  } else {
    write_shifted(h);  // WHY speculative too: an empty sequence passes its whole state through
  }
}

/// Heads by warps: index = sequence * channel_warps + the channels' warp.
__device__ __forceinline__ void head_items(const ConvParams& p, int64_t index, int lane) {
  const int64_t n = index / p.channel_warps, d = (index - n * p.channel_warps) * 32 + lane;
  if (d < p.D) head_item(p, n, d);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_HEAD_CUH_
