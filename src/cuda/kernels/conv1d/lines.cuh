// Bodies where tokens are neighbours in memory (channel-first views): a thread has the tokens of
// one pack and goes through a few channels, kLinesAhead of them in flight. A pack is computed as if
// it were of one sequence; only what is stored of it knows better, since outputs of a sequence's
// first W - 1 tokens are the head's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

inline constexpr int kLinesAhead = 4;  ///< channels whose loads are in flight

/// Which tokens of a pack the thread stores, a bit each.
struct Stored {
  uint32_t live, zero;
};

template <int kCount>
__device__ __forceinline__ Stored stored_of(const ConvParams& p, int64_t batch, int64_t row) {
  Stored stored{};
  Span span{-1, 0, row};
  bool padding = false;
#pragma unroll 1
  for (int i = 0; i < kCount && row + i < p.T; ++i) {
    if (row + i >= span.end) {
      span = span_at(p, batch, row + i);
      padding = span.n >= 0 && is_padding(p, span.n);
    }
    if (span.n < 0 || row + i < span.begin + p.W - 1) continue;
    (padding ? stored.zero : stored.live) |= 1u << i;
    // The rest of a pack inside a sequence is like this token.
    if (i == 0 && row + kCount <= span.end) {
      (padding ? stored.zero : stored.live) = (1u << kCount) - 1;
      break;
    }
  }
  return stored;
}

/// Inputs of one channel before they are used: a pack of tokens and the last ones before it.
template <class Pack>
struct LineInputs;

template <Number kType>
struct LineInputs<Pack<kType>> {
  static constexpr int kTokens = 8;
  Pack<kType> tokens;
  uint2 before;  ///< of four tokens

  /// BOUND: tokens past the last row may be another tensor's, so they are not touched.
  static __device__ __forceinline__ LineInputs load(const ConvParams& p, const Column& line,
                                                    int64_t row) {
    LineInputs in{};
    const char* at = line.x + row * 2;
    if (row > 0) in.before = __ldg(reinterpret_cast<const uint2*>(at - 8));
    if (row + kTokens <= p.T) {
      in.tokens = Pack<kType>::load(at, line.x_number);
      return in;
    }
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (row + i >= p.T) break;
      const unsigned short bits = __ldg(reinterpret_cast<const unsigned short*>(at) + i);
      words[i / 2] |= static_cast<uint32_t>(bits) << (i % 2 * 16);
    }
    in.tokens.words = {words[0], words[1], words[2], words[3]};
    return in;
  }
  __device__ __forceinline__ void unpack(float (&x)[kMaxWidth - 1 + kTokens]) const {
    float current[kTokens];
    tokens.unpack(current);
    float earlier[2], later[2];
    Pack<kType>::split(before.x, earlier), Pack<kType>::split(before.y, later);
    x[0] = earlier[1], x[1] = later[0], x[2] = later[1];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) x[kMaxWidth - 1 + i] = current[i];
  }
};

template <>
struct LineInputs<ElementPack> {
  static constexpr int kTokens = 1;
  float x[kMaxWidth];

  static __device__ __forceinline__ LineInputs load(const ConvParams& p, const Column& line,
                                                    int64_t row) {
    LineInputs in{};
#pragma unroll
    for (int age = 0; age < kMaxWidth; ++age) {
      if (age >= p.W || age > row) continue;
      in.x[kMaxWidth - 1 - age] = device::load_number(line.x, row - age, line.x_number);
    }
    return in;
  }
  __device__ __forceinline__ void unpack(float (&out)[kMaxWidth]) const {
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) out[i] = x[i];
  }
};

template <class Pack>
__device__ __forceinline__ void store_line(const Column& line, int64_t row, const Stored& stored,
                                           const float (&y)[Pack::kElements]) {
  char* at = line.out + row * line.out_step;
  if (stored.live == (1u << Pack::kElements) - 1) return Pack::store(at, line.out_number, y);
#pragma unroll
  for (int i = 0; i < Pack::kElements; ++i) {
    const bool live = stored.live >> i & 1;
    if (!live && (stored.zero >> i & 1) == 0) continue;
    device::store_number(at, i, line.out_number, live ? y[i] : 0.0f);
  }
}

/// Outputs of the pack of tokens at `row` of one channel.
template <class Pack>
__device__ __forceinline__ void convolve_line(const ConvParams& p, const Taps<1>& taps,
                                              const LineInputs<Pack>& in,
                                              float (&y)[Pack::kElements]) {
  constexpr int kTokens = Pack::kElements;
  float x[kMaxWidth - 1 + kTokens];
  in.unpack(x);
#pragma unroll
  for (int i = 0; i < kTokens; ++i) y[i] = taps.bias[0];
#pragma unroll
  for (int w = 0; w < kMaxWidth; ++w) {
    if (w < kMaxWidth - p.W) continue;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) y[i] = fmaf(taps.tap[w][0], x[i + w], y[i]);
  }
  if (p.silu) activate(y);
}

/// The line of channel d of a batch entry, found from that of d - 1 where it can be.
__device__ __forceinline__ void next_line(const ConvParams& p, int64_t batch, int64_t d,
                                          Column& line) {
  if (p.parts == 1 && p.part[0].C == p.D) {
    line.x += p.part[0].x.channel_stride * bytes_of(line.x_number);
    line.out += p.part[0].out.channel_stride * bytes_of(line.out_number);
  } else if (d < p.D) {
    line = column_of(p, batch, d);
  }
}

/// Lines side by side: index = (group of p.lines channels) * (B tiles) + the tile.
template <class Pack>
__device__ __forceinline__ void lines_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t tiles = p.B * p.tiles, group = index / tiles, tile = index - group * tiles;
  const int64_t batch = tile / p.tiles, first = group * p.lines;
  const int64_t row = ((tile - batch * p.tiles) * 32 + lane) * Pack::kElements;
  if (row >= p.T) return;
  const auto count = static_cast<int>(min(p.D - first, int64_t{p.lines}));
  Column ahead_line = column_of(p, batch, first), line = ahead_line;
  LineInputs<Pack> inputs[kLinesAhead] = {};
  Taps<1> taps[kLinesAhead] = {};
  const Stored stored = stored_of<Pack::kElements>(p, batch, row);
  // The first round only loads: one copy of the code that does.
#pragma unroll 1
  for (int base = -kLinesAhead; base < count; base += kLinesAhead) {
#pragma unroll
    for (int c = 0; c < kLinesAhead; ++c) {
      const int at = base + c, later = at + kLinesAhead;
      if (at >= count) break;
      float y[Pack::kElements] = {};
      if (base >= 0) convolve_line<Pack>(p, taps[c], inputs[c], y);
      if (later < count) {
        inputs[c] = LineInputs<Pack>::load(p, ahead_line, row);
        taps[c] = load_taps<1>(p, first + later);
      }
      next_line(p, batch, first + later + 1, ahead_line);
      if (base < 0) continue;
      store_line<Pack>(line, row, stored, y);
      next_line(p, batch, first + at + 1, line);
    }
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_
