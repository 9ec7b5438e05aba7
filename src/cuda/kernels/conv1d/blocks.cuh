// Convolves in the form that models have, channel-last or channel-first: a thread has four
// neighbouring channels of eight tokens, all of its loads in flight at once, and nothing that it
// runs is a loop. Layouts differ in what a pack of memory is: channels of a token, or tokens of a
// channel, which are turned in registers.
//
// WHY beside any_form.cuh: short prefills are bound by code that is fetched as it runs and by what
// follows the loads one after another. Grids have three dimensions instead of divisions, and blocks
// side by side in memory run side by side in time, which at any length is nearer a copy than longer
// walks are (docs/kernels/layer.md).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/layouts.cuh"

namespace sluice::cuda::conv1d {

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

/// Sequence n, channels d and d + 1: what any_form.cuh says of heads. PERF whatever can be requested
/// before slots are known is.
template <class Numbers, class Layout>
__device__ __forceinline__ void pair_head(const ConvParams& p, int64_t n, int64_t d) {
  constexpr int kBefore = kMaxWidth - 1;
  using Pack = typename Numbers::Pack;
  const Taps<2> taps = typename Numbers::Weights(p, d).taps();
  const Span span = rows_of(p, n);
  const auto tokens = static_cast<int>(span.end - span.begin);
  const Layout at(p, p.cu_seqlens.data == nullptr ? n : 0, span.begin, d);
  uint32_t word[2 * kBefore] = {}, last[kMaxWidth] = {};
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t < tokens) word[kBefore + t] = at.pair(t);
  }
#pragma unroll
  for (int i = 0; i < kMaxWidth; ++i) {
    const int t = tokens - kMaxWidth + i;
    if (p.final.data != nullptr && t >= 0) last[i] = at.pair(t);
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
  for (int i = 0; i < 2 * kBefore; ++i) Pack::unpack_word(word[i], inputs[i]);
#pragma unroll
  for (int t = 0; t < kBefore; ++t) {
    if (t >= tokens) break;
    convolve<true>(p, taps, inputs[t], inputs[t + 1], inputs[t + 2], inputs[t + 3], y);
    at.store_pair(t, padding ? 0 : Pack::joined(y));
  }
  const bool in_place = slots.read == slots.write && p.initial.data == p.final.data;
  if (slots.write < 0 || (tokens == 0 && in_place)) return;
  shift_pair(tokens, last, c);
  store_pair(p.final, form, slots.write, d, c);
}

/// Outputs of a thread's tokens, of which `rows` says which are stored.
/// @param row tokens from the third before them on
template <class Pack, class Layout>
__device__ __forceinline__ void convolve_block(const ConvParams& p, const Taps<2> (&taps)[2],
                                               const BlockInputs& row, const StoredRows& rows,
                                               Layout& to) {
  float window[kMaxWidth][2][2];  // row t in window[t % kMaxWidth]
  BlockOutputs out;
#pragma unroll
  for (int j = 0; j < kMaxWidth - 1 + kThreadTokens; ++j) {
    Pack::unpack_word(row[j].x, window[j % 4][0]);
    Pack::unpack_word(row[j].y, window[j % 4][1]);
    const int t = j - (kMaxWidth - 1);
    if (t < 0) continue;
    float y[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      convolve<true>(p, taps[i], window[(j + 1) % 4][i], window[(j + 2) % 4][i],
                     window[(j + 3) % 4][i], window[j % 4][i], y[i]);
    }
    out[t] = {Pack::joined(y[0]), Pack::joined(y[1])};
  }
  to.store_rows(rows, out);
}

/// Channels of a block of tokens; none past the last channel. Whole warps only.
template <class Numbers, class Layout>
__device__ __forceinline__ void block_item(const ConvParams& p, const Block& block) {
  const bool stores = block.d < p.D;
  const int64_t batch = blockIdx.z, d = stores ? block.d : 0;
  Layout at(p, batch, block.first, d);
  BlockInputs row = {};
  at.load_rows(block.first, block.count, row);
  using Weights = typename Numbers::Weights;
  const Taps<2> taps[2] = {Weights(p, d).taps(), Weights(p, d + 2).taps()};
  const StoredRows rows = Layout::stored(p, batch, block);
  if (stores) convolve_block<typename Numbers::Pack>(p, taps, row, rows, at);
}

/// blockIdx: x and y by the layout, rows of CTAs of heads first; batch entries. A head's thread has
/// two channels.
template <class Numbers, class Layout>
__global__ void __launch_bounds__(kThreads,
                                  Layout::kCtas < Numbers::kCtas ? Layout::kCtas : Numbers::kCtas)
    block_kernel(const __grid_constant__ ConvParams p) {
  device::follow();
  const auto heads = static_cast<uint32_t>(p.heads);
  if (blockIdx.y >= heads)
    return block_item<Numbers, Layout>(p, Layout::block(p, blockIdx.y - heads));
  const HeadPlace head = Layout::head(p);
  const int64_t n = p.cu_seqlens.data == nullptr ? blockIdx.z : head.n;
  if (head.d < p.D) pair_head<Numbers, Layout>(p, n, head.d);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_
