// Convolves channel-last views in the form that models have: a thread has four neighbouring
// channels of eight tokens, all of its loads in flight at once, and nothing that it runs is a loop.
//
// WHY beside any_form.cuh: short prefills are bound by code that is fetched as it runs and by what
// follows the loads one after another. Grids have three dimensions instead of divisions, and blocks
// side by side in memory run side by side in time, which at any length is nearer a copy than longer
// walks are (docs/kernels/layer.md).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_LAST_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_LAST_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/pair.cuh"
#include "cuda/kernels/conv1d/stored_rows.cuh"
#include "cuda/ptx/address.cuh"

namespace sluice::cuda::conv1d {

/// Row 0 of channel d of a batch entry.
/// @tparam kApart groups of channels may lie apart; else they lie side by side
template <bool kApart>
__device__ __forceinline__ Column packed_column(const ConvParams& p, int64_t batch, int64_t d) {
  const ChannelPart& part = part_of(p, d);
  const TokenChannels &x = part.x, &out = part.out;
  const int64_t inside = d - part.first;
  int64_t x_at = inside, out_at = inside;
  if constexpr (kApart) {
    const auto C = static_cast<uint32_t>(part.C);
    const uint32_t group = static_cast<uint32_t>(inside) / C;
    x_at += group * (x.group_stride - C), out_at += group * (out.group_stride - C);
  }
  return {static_cast<const char*>(x.data) + 2 * (batch * x.batch_stride + x_at),
          static_cast<char*>(out.data) + 2 * (batch * out.batch_stride + out_at),
          2 * x.token_stride,
          2 * out.token_stride,
          x.number,
          out.number};
}

/// The pair's columns after `tokens` inputs, whose last four are `last`.
__device__ __forceinline__ void shift_pair(int tokens, const uint32_t (&last)[kMaxWidth],
                                           PairColumns& c) {
#pragma unroll
  for (int t = 0; t < kMaxWidth; ++t) {
    if (t >= tokens) break;
    c.word[0] = c.word[1], c.word[1] = c.word[2], c.word[2] = c.word[3];
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    if (tokens - kMaxWidth + i >= 0) c.word[i] = last[i];
  }
}

/// Sequence n, channels d and d + 1: what head.cuh says of heads. PERF whatever can be requested
/// before slots are known is.
template <class Pack, bool kApart>
__device__ __forceinline__ void pair_head(const ConvParams& p, int64_t n, int64_t d) {
  constexpr int kBefore = kMaxWidth - 1;
  const Taps<2> taps = pair_taps<Pack>(p, d);
  const Span span = rows_of(p, n);
  const auto tokens = static_cast<int>(span.end - span.begin);
  const Column column = packed_column<kApart>(p, p.cu_seqlens.data == nullptr ? n : 0, d);
  const char* x = column.x + span.begin * column.x_step;
  char* out = column.out + span.begin * column.out_step;
  const auto input = [&](int t) {
    return __ldg(reinterpret_cast<const uint32_t*>(x + t * column.x_step));
  };
  uint32_t word[2 * kBefore] = {}, last[kMaxWidth] = {};
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t < tokens) word[kBefore + t] = input(t);
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int t = tokens - kMaxWidth + i;
    if (p.final.data != nullptr && t >= 0) last[i] = input(t);
  }
  const bool padding = is_padding(p, n);
  const Slots slots = padding ? Slots{-1, -1} : slots_of(p, n);
  const PairForm form{p.L, p.state_order == StateOrder::kColumnsOutside};
  PairColumns c{};
  if (slots.read >= 0) c = load_pair(p.initial, form, slots.read, d);
  float inputs[2 * kBefore][2], y[2];
#pragma unroll
  for (int i = 0; i < kBefore; ++i) word[i] = c.word[i + 1];
#pragma unroll
  for (int i = 0; i < 2 * kBefore; ++i) Pack::split(word[i], inputs[i]);
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t >= tokens) break;
    convolve<true>(p, taps, inputs[t], inputs[t + 1], inputs[t + 2], inputs[t + 3], y);
    *reinterpret_cast<uint32_t*>(out + t * column.out_step) = padding ? 0 : Pack::joined(y);
  }
  const bool in_place = slots.read == slots.write && p.initial.data == p.final.data;
  if (slots.write < 0 || (tokens == 0 && in_place)) return;
  shift_pair(tokens, last, c);
  store_pair(p.final, form, slots.write, d, c);
}

/// Outputs of a thread's tokens, of which `rows` says which are stored.
/// @param row tokens from the third before them on
template <class Pack>
__device__ __forceinline__ void convolve_block(const ConvParams& p, const Taps<2> (&taps)[2],
                                               const uint2 (&row)[kMaxWidth - 1 + kThreadTokens],
                                               const StoredRows& rows, char* out, int64_t step) {
  float window[kMaxWidth][2][2];  // row t in window[t % kMaxWidth]
#pragma unroll
  for (int j = 0; j < kMaxWidth - 1 + kThreadTokens; ++j) {
    Pack::split(row[j].x, window[j % 4][0]);
    Pack::split(row[j].y, window[j % 4][1]);
    const int t = j - (kMaxWidth - 1);
    if (t < 0) continue;
    uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float y[2];
      convolve<true>(p, taps[i], window[(j + 1) % 4][i], window[(j + 2) % 4][i],
                     window[(j + 3) % 4][i], window[j % 4][i], y);
      word[i] = Pack::joined(y);
    }
    const bool live = rows.live >> t & 1;
    if (live || (rows.zero >> t & 1) != 0) {
      *reinterpret_cast<uint2*>(out) = live ? make_uint2(word[0], word[1]) : make_uint2(0, 0);
    }
    ptx::advance(out, step);
  }
}

/// Channels d .. d + 3 of `count` tokens from `first` on; none past the last channel.
/// Whole warps only.
template <class Pack, bool kApart>
__device__ __forceinline__ void block_item(const ConvParams& p, int64_t batch, int first, int count,
                                           int64_t d) {
  constexpr int kBefore = kMaxWidth - 1;
  const bool stores = d < p.D;
  if (!stores) d = 0;
  const Column column = packed_column<kApart>(p, batch, d);
  const char* x = column.x + (first - kBefore) * column.x_step;
  uint2 row[kBefore + kThreadTokens] = {};
#pragma unroll
  for (int j = 0; j < kBefore + kThreadTokens; ++j) {
    if (j < kBefore ? first > 0 : j - kBefore < count) {
      row[j] = __ldg(reinterpret_cast<const uint2*>(x));
    }
    ptx::advance(x, column.x_step);
  }
  const Taps<2> taps[2] = {pair_taps<Pack>(p, d), pair_taps<Pack>(p, d + 2)};
  const StoredRows rows = stored_rows(p, batch, first, count);
  if (!stores) return;
  convolve_block<Pack>(p, taps, row, rows, column.out + first * column.out_step, column.out_step);
}

/// blockIdx: channels, heads and then blocks of tokens, batch entries. A head's thread has two
/// channels.
template <class Pack, bool kApart>
__global__ void __launch_bounds__(kThreads, 6)
    channel_last_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const auto heads = static_cast<uint32_t>(p.heads);
  if (blockIdx.y < heads) {
    const uint32_t cta = 2 * blockIdx.x + blockIdx.y % 2;
    const int64_t d = 2 * (int64_t{cta} * kThreads + threadIdx.x);
    const int64_t n = p.cu_seqlens.data == nullptr ? blockIdx.z : blockIdx.y / 2;
    if (d < p.D) pair_head<Pack, kApart>(p, n, d);
    return;
  }
  const auto first = static_cast<int>((blockIdx.y - heads) * kThreadTokens);
  const int count = min(kThreadTokens, static_cast<int>(p.T) - first);
  const int64_t d = kThreadChannels * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  block_item<Pack, kApart>(p, blockIdx.z, first, count, d);
}

template <class Pack>
ConvKernel channel_last_kernel_of(bool groups_apart) noexcept {
  return groups_apart ? channel_last_kernel<Pack, true> : channel_last_kernel<Pack, false>;
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_CHANNEL_LAST_CUH_
