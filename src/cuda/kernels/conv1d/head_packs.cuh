// Heads by packs: head.cuh's work for four channels a thread, where states have x's type and a
// memory order that packs fit. Columns that only move are moved as they lie in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// Four channels of one sequence.
template <class Pack>
struct PackedHead {
  const ConvParams& p;
  const ChannelPart& part;
  int64_t n, d, tokens;
  int64_t x_at, out_at;  ///< elements of the first token
  Slots slots;

  __device__ __forceinline__ Pack input(int64_t t) const {
    return Pack::load(part.x, x_at + t * part.x.token_stride);
  }
  __device__ __forceinline__ int64_t read_at() const {
    return slots.read * p.initial.slot_stride + d * p.initial.channel_stride;
  }
  __device__ __forceinline__ int64_t write_at() const {
    return slots.write * p.final.slot_stride + d * p.final.channel_stride;
  }
  __device__ __forceinline__ bool in_place() const {
    return slots.read == slots.write && p.initial.data == p.final.data;
  }
  /// Column `column` of the old state, where columns are outside; zeros without one.
  __device__ __forceinline__ Pack old_column(int64_t column) const {
    if (slots.read < 0) return {};
    return Pack::load_written(p.initial.data, read_at() + column * p.initial.column_stride);
  }
  __device__ __forceinline__ void new_column(int64_t column, const Pack& pack) const {
    pack.store_raw(p.final.data, write_at() + column * p.final.column_stride);
  }
  __device__ __forceinline__ int64_t ring_column(int64_t position) const {
    return (position % p.L + p.L) % p.L;
  }
};

/// The last four columns of a shifted state, newest last: column[3]. Those it has not are zeros.
template <class Pack>
struct Columns {
  Pack column[kMaxWidth];
};

template <int kL, class Pack>
__device__ __forceinline__ void load_inside(const PackedHead<Pack>& h, Columns<Pack>& c) {
  typename Pack::Bits bits[4 * kL] = {};
#pragma unroll
  for (int j = 0; j < kL && h.slots.read >= 0; ++j) {
    const Pack pack = Pack::load_written(h.p.initial.data, h.read_at() + 4 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[4 * j + i] = pack.bits(i);
  }
#pragma unroll
  for (int j = 0; j < kL; ++j) {
    c.column[kMaxWidth - kL + j] =
        Pack::of(bits[j], bits[kL + j], bits[2 * kL + j], bits[3 * kL + j]);
  }
}

template <int kL, class Pack>
__device__ __forceinline__ void store_inside(const PackedHead<Pack>& h, const Columns<Pack>& c) {
  typename Pack::Bits bits[4 * kL];
#pragma unroll
  for (int j = 0; j < kL; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i * kL + j] = c.column[kMaxWidth - kL + j].bits(i);
  }
#pragma unroll
  for (int j = 0; j < kL; ++j) {
    Pack::of(bits[4 * j], bits[4 * j + 1], bits[4 * j + 2], bits[4 * j + 3])
        .store_raw(h.p.final.data, h.write_at() + 4 * j);
  }
}

/// The columns before the first token; of a ring the W - 1 newest.
template <class Pack>
__device__ __forceinline__ Columns<Pack> load_columns(const PackedHead<Pack>& h) {
  Columns<Pack> c{};
  if (h.p.head_form == HeadForm::kColumnsInside) {
    h.p.L == 3 ? load_inside<3>(h, c) : load_inside<4>(h, c);
    return c;
  }
  const int64_t position = h.p.ring ? device::load_index(h.p.ring_position, h.n) : 0;
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int age = kMaxWidth - i;
    if (age > (h.p.ring ? h.p.W - 1 : h.p.L)) continue;
    c.column[i] = h.old_column(h.p.ring ? h.ring_column(position - age) : h.p.L - age);
  }
  return c;
}

template <class Pack>
__device__ __forceinline__ void convolve_packs(const PackedHead<Pack>& h, const Columns<Pack>& c) {
  Taps taps[4];
  float before[kMaxWidth - 1][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) taps[i] = load_taps(h.p, h.d + i);
#pragma unroll
  for (int j = 0; j < kMaxWidth - 1; ++j) {
    c.column[j + 1].unpack(h.part.x.number, before[j]);
  }
  const int64_t count = min(h.tokens, static_cast<int64_t>(h.p.W - 1));
  for (int64_t t = 0; t < count; ++t) {
    float x[4], y[4];
    h.input(t).unpack(h.part.x.number, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = convolve(h.p, taps[i], before[0][i], before[1][i], before[2][i], x[i]);
      before[0][i] = before[1][i], before[1][i] = before[2][i], before[2][i] = x[i];
    }
    Pack::store(h.part.out, h.out_at + t * h.part.out.token_stride, y);
  }
}

/// The state after the sequence; see head.cuh for each form.
template <class Pack>
__device__ __forceinline__ void write_columns(const PackedHead<Pack>& h, Columns<Pack>& c) {
  const int64_t L = h.p.L, first = max(h.tokens - L, int64_t{0});
  if (h.p.ring) {
    for (int64_t column = 0; column < L && !h.in_place(); ++column) {
      h.new_column(column, h.old_column(column));
    }
    const int64_t position = device::load_index(h.p.ring_position, h.n);
    for (int64_t t = first; t < h.tokens; ++t) {
      h.new_column(h.ring_column(position + t), h.input(t));
    }
    return;
  }
  for (int64_t t = first; t < h.tokens; ++t) {
    c.column[0] = c.column[1], c.column[1] = c.column[2], c.column[2] = c.column[3];
    c.column[3] = h.input(t);
  }
  if (h.p.head_form == HeadForm::kColumnsInside) {
    L == 3 ? store_inside<3>(h, c) : store_inside<4>(h, c);
    return;
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int64_t column = i - (kMaxWidth - L);
    if (column >= 0) h.new_column(column, c.column[i]);
  }
}

/// Sequence n, channels d .. d + 3.
template <class Pack>
__device__ __forceinline__ void packed_head_item(const ConvParams& p, int64_t n, int64_t d) {
  const ChannelPart& part = part_of(p, d);
  const Span span = rows_of(p, n);
  const int64_t batch = p.cu_seqlens.data == nullptr ? n : 0, inside = d - part.first;
  PackedHead<Pack> h{p, part, n, d, span.end - span.begin, 0, 0, {-1, -1}};
  h.x_at = element_of(part.x, part.C, batch, inside) + span.begin * part.x.token_stride;
  h.out_at = element_of(part.out, part.C, batch, inside) + span.begin * part.out.token_stride;
  if (is_padding(p, n)) {
    const int64_t count = min(h.tokens, static_cast<int64_t>(p.W - 1));
    const float zeros[4] = {};
    for (int64_t t = 0; t < count; ++t) {
      Pack::store(part.out, h.out_at + t * part.out.token_stride, zeros);
    }
    return;
  }
  h.slots = slots_of(p, n);
  Columns<Pack> columns = load_columns(h);
  convolve_packs(h, columns);
  if (h.slots.write < 0 || (h.tokens == 0 && h.in_place())) return;
  write_columns(h, columns);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_HEAD_PACKS_CUH_
