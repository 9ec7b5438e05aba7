// Convolves channel-first views, whose neighbouring tokens are neighbours in memory: a
// thread has the tokens of one pack and goes through a few channels, kChannelsAhead of them in
// flight. A pack is computed as if it were of one sequence; only what is stored of it knows better,
// since outputs of a sequence's first W - 1 tokens are the head's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_FIRST_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_FIRST_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/head.cuh"

namespace sluice::cuda::conv1d {

inline constexpr int kChannelsAhead = 4;  ///< channels whose loads are in flight
inline constexpr int kPackTokens = 8;     ///< 16-bit numbers of 16 bytes

/// Which tokens of a pack the thread stores, a bit each.
struct Stored {
  uint32_t live, zero;
};

__device__ __forceinline__ Stored stored_of(const ConvParams& p, int64_t batch, int64_t row) {
  Stored stored{};
  Span span{-1, 0, row};
  bool padding = false;
#pragma unroll 1
  for (int i = 0; i < kPackTokens && row + i < p.T; ++i) {
    if (row + i >= span.end) {
      span = span_at(p, batch, row + i);
      padding = span.n >= 0 && is_padding(p, span.n);
    }
    if (span.n < 0 || row + i < span.begin + p.W - 1) continue;
    (padding ? stored.zero : stored.live) |= 1u << i;
    // The rest of a pack inside a sequence is like this token.
    if (i == 0 && row + kPackTokens <= span.end) {
      (padding ? stored.zero : stored.live) = (1u << kPackTokens) - 1;
      break;
    }
  }
  return stored;
}

/// Inputs of one channel before they are used: a pack of tokens and the last ones before it.
template <class Pack>
struct TokenInputs {
  Pack tokens;
  uint2 before;  ///< of four tokens

  /// BOUND: tokens past the last row may be another tensor's, so they are not touched.
  static __device__ __forceinline__ TokenInputs load(const ConvParams& p, const Column& column,
                                                     int64_t row) {
    TokenInputs in{};
    const char* at = column.x + row * 2;
    if (row > 0) in.before = __ldg(reinterpret_cast<const uint2*>(at - 8));
    if (row + kPackTokens <= p.T) {
      in.tokens = Pack::load(at);
      return in;
    }
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kPackTokens; ++i) {
      if (row + i >= p.T) break;
      const unsigned short bits = __ldg(reinterpret_cast<const unsigned short*>(at) + i);
      words[i / 2] |= static_cast<uint32_t>(bits) << (i % 2 * 16);
    }
    in.tokens.words = {words[0], words[1], words[2], words[3]};
    return in;
  }
  __device__ __forceinline__ void unpack(float (&x)[kMaxWidth - 1 + kPackTokens]) const {
    float current[kPackTokens];
    tokens.unpack(current);
    float earlier[2], later[2];
    Pack::split(before.x, earlier), Pack::split(before.y, later);
    x[0] = earlier[1], x[1] = later[0], x[2] = later[1];
#pragma unroll
    for (int i = 0; i < kPackTokens; ++i) x[kMaxWidth - 1 + i] = current[i];
  }
};

template <class Pack>
__device__ __forceinline__ void store_tokens(const Column& column, int64_t row,
                                             const Stored& stored, const float (&y)[kPackTokens]) {
  char* at = column.out + row * column.out_step;
  if (stored.live == (1u << kPackTokens) - 1) return Pack::store(at, y);
#pragma unroll
  for (int i = 0; i < kPackTokens; ++i) {
    const bool live = stored.live >> i & 1;
    if (!live && (stored.zero >> i & 1) == 0) continue;
    device::store_number(at, i, column.out_number, live ? y[i] : 0.0f);
  }
}

/// Outputs of the pack of tokens at `row` of one channel.
template <class Pack>
__device__ __forceinline__ void convolve_tokens(const ConvParams& p, const Taps<1>& taps,
                                                const TokenInputs<Pack>& in,
                                                float (&y)[kPackTokens]) {
  float x[kMaxWidth - 1 + kPackTokens];
  in.unpack(x);
#pragma unroll
  for (int i = 0; i < kPackTokens; ++i) y[i] = taps.bias[0];
#pragma unroll
  for (int w = 0; w < kMaxWidth; ++w) {
    if (w < kMaxWidth - p.W) continue;
#pragma unroll
    for (int i = 0; i < kPackTokens; ++i) y[i] = fmaf(taps.tap[w][0], x[i + w], y[i]);
  }
  if (p.silu) activate(y);
}

/// Channel d of a batch entry, found from that of d - 1 where it can be.
__device__ __forceinline__ void next_channel(const ConvParams& p, int64_t batch, int64_t d,
                                             Column& column) {
  if (p.parts == 1 && p.part[0].C == p.D) {
    column.x += p.part[0].x.channel_stride * bytes_of(column.x_number);
    column.out += p.part[0].out.channel_stride * bytes_of(column.out_number);
  } else if (d < p.D) {
    column = column_of(p, batch, d);
  }
}

/// Channels side by side: index = (group of p.thread_channels channels) * (B tiles) + the tile.
template <class Pack>
__device__ __forceinline__ void channels_item(const ConvParams& p, int64_t index, int lane) {
  const int64_t tiles = p.B * p.tiles, group = index / tiles, tile = index - group * tiles;
  const int64_t batch = tile / p.tiles, first = group * p.thread_channels;
  const int64_t row = ((tile - batch * p.tiles) * 32 + lane) * kPackTokens;
  if (row >= p.T) return;
  const auto count = static_cast<int>(min(p.D - first, int64_t{p.thread_channels}));
  Column ahead_column = column_of(p, batch, first), column = ahead_column;
  TokenInputs<Pack> inputs[kChannelsAhead] = {};
  Taps<1> taps[kChannelsAhead] = {};
  const Stored stored = stored_of(p, batch, row);
  // The first round only loads: one copy of the code that does.
#pragma unroll 1
  for (int base = -kChannelsAhead; base < count; base += kChannelsAhead) {
#pragma unroll
    for (int c = 0; c < kChannelsAhead; ++c) {
      const int at = base + c, later = at + kChannelsAhead;
      if (at >= count) break;
      float y[kPackTokens] = {};
      if (base >= 0) convolve_tokens<Pack>(p, taps[c], inputs[c], y);
      if (later < count) {
        inputs[c] = TokenInputs<Pack>::load(p, ahead_column, row);
        taps[c] = load_taps(p, first + later);
      }
      next_channel(p, batch, first + later + 1, ahead_column);
      if (base < 0) continue;
      store_tokens<Pack>(column, row, stored, y);
      next_channel(p, batch, first + at + 1, column);
    }
  }
}

/// CTAs a multiprocessor that the registers must allow.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kChannelFirstCtas = 3;  // WHY: compiled for Blackwell, it needs more registers
#else
inline constexpr int kChannelFirstCtas = 4;
#endif

/// @param p by value, in constant memory
template <class Pack>
__global__ void __launch_bounds__(kThreads, kChannelFirstCtas)
    channel_first_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t index = p.first_warp + int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (index >= p.warps) return;
  if (index < p.heads) return head_items(p, index, lane);
  channels_item<Pack>(p, index - p.heads, lane);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_FIRST_CUH_
