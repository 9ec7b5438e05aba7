// Heads by packs: head.cuh's work for the channels of one pack a thread, where states have x's type
// and a memory order that packs fit. Columns that only move are moved as they lie in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_

#include "cuda/kernels/conv1d/columns.cuh"
#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// One pack of channels of one sequence. Lanes past the last channel do what the last one does and
/// store nothing, because whole warps move columns.
template <class Pack>
struct PackedHead {
  const ConvParams& p;
  Column column;  ///< of the first token
  Slots slots;
  int64_t tokens, d, warp_d;
  int64_t position;  ///< of a ring, within 0 .. L - 1
  uint4* stage;      ///< the warp's
  int lane, pieces;  ///< that the state of the warp's channels has
  bool stores;

  __device__ __forceinline__ Pack input(int64_t t) const {
    return Pack::load(column.x + t * column.x_step, column.x_number);
  }
  __device__ __forceinline__ void output(int64_t t, const Pack& pack) const {
    if (stores) pack.store_raw(column.out + t * column.out_step);
  }
  /// Of a column of a channel.
  static __device__ __forceinline__ char* at(const ConvPool& pool, int64_t slot, int64_t channel,
                                             int64_t column) {
    const int64_t element =
        slot * pool.slot_stride + channel * pool.channel_stride + column * pool.column_stride;
    return static_cast<char*>(pool.data) + element * (Pack::kIsFloat ? 4 : 2);
  }
  __device__ __forceinline__ Pack old_column(int64_t column) const {
    return Pack::load_written(at(p.initial, slots.read, d, column));
  }
  __device__ __forceinline__ void new_column(int64_t column, const Pack& pack) const {
    if (stores) pack.store_raw(at(p.final, slots.write, d, column));
  }
  __device__ __forceinline__ bool in_place() const {
    return slots.read == slots.write && p.initial.data == p.final.data;
  }
};

/// The columns before the first token; of a ring the W - 1 newest.
template <class Pack>
__device__ __forceinline__ Columns<Pack> load_columns(const PackedHead<Pack>& h) {
  Columns<Pack> c{};
  if (h.slots.read < 0) return c;
  if (h.p.head_form == HeadForm::kColumnsInside) {
    const char* from = h.at(h.p.initial, h.slots.read, h.warp_d, 0);
    const int pieces = h.pieces;
    h.p.L == 3 ? load_inside<3>(from, pieces, h.stage, h.lane, c)
               : load_inside<4>(from, pieces, h.stage, h.lane, c);
    return c;
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int age = kMaxWidth - i;
    if (age > (h.p.ring ? h.p.W - 1 : h.p.L)) continue;
    const int64_t before = h.p.ring ? h.position - age : h.p.L - age;
    c.column[i] = h.old_column(before < 0 ? before + h.p.L : before);  // BOUND: L >= W - 1
  }
  return c;
}

__device__ __forceinline__ uint32_t& word_of(uint4& words, int i) {
  return i < 2 ? (i == 0 ? words.x : words.y) : (i == 2 ? words.z : words.w);
}

/// Outputs of the first W - 1 tokens. WHY word by word: weights and inputs of a whole pack are more
/// registers than the loads in flight of the threads that they would cost.
template <class Pack>
__device__ __forceinline__ void convolve_packs(const PackedHead<Pack>& h, Columns<Pack>& c) {
  constexpr int kBefore = kMaxWidth - 1, kCount = Pack::kOfWord;
  const int64_t count = min(h.tokens, static_cast<int64_t>(h.p.W - 1));
  Pack packs[kBefore] = {};  // inputs, then outputs
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t < count) packs[t] = h.input(t);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Taps<kCount> taps = load_taps<kCount>(h.p, h.d + i * kCount);
    float x[2 * kBefore][kCount];
#pragma unroll
    for (int t = 0; t < kBefore; ++t) {
      Pack::split(word_of(c.column[t + 1].words, i), x[t]);
      Pack::split(word_of(packs[t].words, i), x[kBefore + t]);
    }
#pragma unroll
    for (int t = 0; t < kBefore; ++t) {
      if (t >= count) break;
      float y[kCount];
      convolve(h.p, taps, x[t], x[t + 1], x[t + 2], x[t + 3], y);
      word_of(packs[t].words, i) = Pack::joined(y);
    }
  }
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t < count) h.output(t, packs[t]);
  }
}

/// All columns carried over, then the last inputs from the ring's position on.
template <class Pack>
__device__ __forceinline__ void write_ring(const PackedHead<Pack>& h) {
  const int64_t L = h.p.L;
  for (int64_t column = 0; column < L && !h.in_place(); ++column) {
    h.new_column(column, h.slots.read < 0 ? Pack{} : h.old_column(column));
  }
  const int64_t first = max(h.tokens - L, int64_t{0});
  int64_t column = first == 0 ? h.position : (h.position + first) % L;
  for (int64_t t = first; t < h.tokens; ++t) {
    h.new_column(column, h.input(t));
    column = column + 1 == L ? 0 : column + 1;
  }
}

/// The last columns of (old state, inputs). PERF the loads are all in flight at once.
template <class Pack>
__device__ __forceinline__ void write_shifted(const PackedHead<Pack>& h, Columns<Pack>& c) {
  Pack last[kMaxWidth] = {};
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int64_t t = h.tokens - kMaxWidth + i;
    if (t >= 0) last[i] = h.input(t);
  }
#pragma unroll
  for (int t = 0; t < kMaxWidth; ++t) {
    if (t >= h.tokens) break;
    c.column[0] = c.column[1], c.column[1] = c.column[2], c.column[2] = c.column[3];
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    if (h.tokens - kMaxWidth + i >= 0) c.column[i] = last[i];
  }
  if (h.p.head_form == HeadForm::kColumnsInside) {
    char* to = h.at(h.p.final, h.slots.write, h.warp_d, 0);
    const int pieces = h.pieces;
    h.p.L == 3 ? store_inside<3>(to, pieces, h.stage, h.lane, c)
               : store_inside<4>(to, pieces, h.stage, h.lane, c);
    return;
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int64_t column = i - (kMaxWidth - h.p.L);
    if (column >= 0) h.new_column(column, c.column[i]);
  }
}

/// Column of the first token of a sequence.
__device__ __forceinline__ Column first_of(const ConvParams& p, const Span& span, int64_t d) {
  Column column = column_of(p, p.cu_seqlens.data == nullptr ? span.n : 0, d);
  column.x += span.begin * column.x_step;
  column.out += span.begin * column.out_step;
  return column;
}

__device__ __forceinline__ int64_t ring_position(const ConvParams& p, int64_t n) {
  if (!p.ring) return 0;
  const int64_t position = device::load_index(p.ring_position, n) % p.L;
  return position < 0 ? position + p.L : position;
}

/// Sequence n, the channels of warp `warp` of them. Whole warps only.
template <class Pack>
__device__ __forceinline__ void packed_head_item(const ConvParams& p, int64_t n, int64_t warp,
                                                 int lane, uint4* stage) {
  const int64_t warp_d = warp * 32 * Pack::kElements, wanted = warp_d + lane * Pack::kElements;
  const int64_t d = min(wanted, p.D - Pack::kElements);
  const auto packs = static_cast<int>(min((p.D - warp_d) / Pack::kElements, int64_t{32}));
  const Span span = rows_of(p, n);
  const int64_t tokens = span.end - span.begin;
  PackedHead<Pack> h{p,    first_of(p, span, d), {-1, -1},    tokens, d, warp_d, 0, stage,
                     lane, packs * p.L,          wanted < p.D};
  if (is_padding(p, n)) {
    const int64_t count = min(tokens, static_cast<int64_t>(p.W - 1));
    for (int64_t t = 0; t < count; ++t) h.output(t, Pack{});
    return;
  }
  h.slots = slots_of(p, n);
  h.position = ring_position(p, n);
  Columns<Pack> columns = load_columns(h);
  convolve_packs(h, columns);
  if (h.slots.write < 0 || (tokens == 0 && h.in_place())) return;
  p.ring ? write_ring(h) : write_shifted(h, columns);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_
