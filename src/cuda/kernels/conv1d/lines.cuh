// Bodies where tokens are neighbours in memory (channel-first views): a thread has the tokens of
// one pack in a few channels. SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_

#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

inline constexpr int kLines = 4;  ///< channels of a thread

/// One channel of one batch entry.
struct Line {
  const ChannelPart& part;
  int64_t x_at, out_at;  ///< elements of row 0

  __device__ __forceinline__ float input(int64_t row) const {
    return device::load_number(part.x.data, x_at + row * part.x.token_stride, part.x.number);
  }
};

__device__ __forceinline__ Line line_of(const ConvParams& p, int64_t batch, int64_t d) {
  const ChannelPart& part = part_of(p, d);
  return {part, element_of(part.x, part.C, batch, d - part.first),
          element_of(part.out, part.C, batch, d - part.first)};
}

/// Outputs of a pack of tokens that have W - 1 tokens of their sequence before them.
template <class Pack>
__device__ __forceinline__ void convolve_pack(const ConvParams& p, const Line& line, int64_t d,
                                              int64_t row, const Pack& pack,
                                              const float (&before)[kMaxWidth - 1]) {
  const Taps taps = load_taps(p, d);
  float x[kMaxWidth - 1 + Pack::kElements], current[Pack::kElements], y[Pack::kElements];
  pack.unpack(line.part.x.number, current);
#pragma unroll
  for (int i = 0; i < kMaxWidth - 1; ++i) x[i] = before[i];
#pragma unroll
  for (int i = 0; i < Pack::kElements; ++i) x[kMaxWidth - 1 + i] = current[i];
#pragma unroll
  for (int i = 0; i < Pack::kElements; ++i) {
    y[i] = convolve(p, taps, x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
  Pack::store(line.part.out, line.out_at + row, y);
}

/// Tokens of one sequence: the previous pack of each line brings what is before them. BOUND: row is
/// a multiple of the pack's size and at least W - 1 > 0, so there is a previous pack.
__device__ __forceinline__ void convolve_lines(const ConvParams& p, int64_t batch, int64_t d,
                                               int64_t row, ShortPack) {
  using Pack = ShortPack;
  Pack packs[kLines] = {}, previous[kLines] = {};
#pragma unroll
  for (int c = 0; c < kLines; ++c) {
    if (d + c >= p.D) continue;
    const Line line = line_of(p, batch, d + c);
    packs[c] = Pack::load(line.part.x, line.x_at + row);
    previous[c] = Pack::load(line.part.x, line.x_at + row - Pack::kElements);
  }
#pragma unroll
  for (int c = 0; c < kLines; ++c) {
    if (d + c >= p.D) continue;
    const Line line = line_of(p, batch, d + c);
    float x[Pack::kElements];
    previous[c].unpack(line.part.x.number, x);
    constexpr int kEnd = Pack::kElements;
    convolve_pack(p, line, d + c, row, packs[c], {x[kEnd - 3], x[kEnd - 2], x[kEnd - 1]});
  }
}

__device__ __forceinline__ void convolve_lines(const ConvParams& p, int64_t batch, int64_t d,
                                               int64_t row, ElementPack) {
  ElementPack packs[kLines] = {};
  float before[kLines][kMaxWidth - 1] = {};
#pragma unroll
  for (int c = 0; c < kLines; ++c) {
    if (d + c >= p.D) continue;
    const Line line = line_of(p, batch, d + c);
    packs[c] = ElementPack::load(line.part.x, line.x_at + row);
#pragma unroll
    for (int age = 1; age < kMaxWidth; ++age) {
      if (age < p.W) before[c][kMaxWidth - 1 - age] = line.input(row - age);
    }
  }
#pragma unroll
  for (int c = 0; c < kLines; ++c) {
    if (d + c >= p.D) continue;
    convolve_pack(p, line_of(p, batch, d + c), d + c, row, packs[c], before[c]);
  }
}

/// One token of one channel: where a sequence begins or ends inside a pack.
__device__ __forceinline__ void convolve_token(const ConvParams& p, const Line& line, int64_t d,
                                               int64_t row, bool padding) {
  float x[kMaxWidth] = {}, y = 0.0f;
  if (!padding) {
#pragma unroll
    for (int age = 0; age < kMaxWidth; ++age) {
      if (age < p.W) x[kMaxWidth - 1 - age] = line.input(row - age);
    }
    y = convolve(p, load_taps(p, d), x[0], x[1], x[2], x[3]);
  }
  device::store_number(line.part.out.data, line.out_at + row * line.part.out.token_stride,
                       line.part.out.number, y);
}

/// Lines side by side: index = (group of kLines channels) * (B tiles) + the tile.
template <class Pack>
__device__ __forceinline__ void lines_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t tile = index % (p.B * p.tiles), batch = tile / p.tiles;
  const int64_t d = index / (p.B * p.tiles) * kLines;
  const int64_t row = (tile % p.tiles * 32 + lane) * Pack::kElements;
  if (row >= p.T) return;
  const int64_t end = min(row + Pack::kElements, p.T), lines = min(d + kLines, p.D);
  Span span = span_at(p, batch, row);
  const bool whole = span.n >= 0 && row + Pack::kElements <= span.end &&
                     row >= span.begin + p.W - 1 && !is_padding(p, span.n);
  if (whole) return convolve_lines(p, batch, d, row, Pack{});
  for (int64_t t = row; t < end; ++t) {
    if (t >= span.end) span = span_at(p, batch, t);
    // The first W - 1 tokens are the head's.
    if (span.n < 0 || t < span.begin + p.W - 1) continue;
    const bool padding = is_padding(p, span.n);
    for (int64_t c = d; c < lines; ++c) convolve_token(p, line_of(p, batch, c), c, t, padding);
  }
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LINES_CUH_
