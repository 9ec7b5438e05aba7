// Convolves in the form that models have, channel-last or channel-first: a thread has four
// neighbouring channels of eight tokens, all of its loads in flight at once, and nothing that it
// runs is a loop. Layouts differ in what a pack of memory is: channels of a token, or tokens of a
// channel, which are turned in registers. Lists the instances of all kernels.
//
// WHY beside any_form.cuh: short prefills are bound by code that is fetched as it runs and by what
// follows the loads one after another. Grids have three dimensions instead of divisions, and blocks
// side by side in memory run side by side in time, which at any length is nearer a copy than longer
// walks are (docs/kernels/layer.md).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_

#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/pairs.cuh"

namespace sluice::cuda::conv1d {

/// A thread's channels d .. d + 3 of `count` tokens from `first` on; none past the last channel.
struct Block {
  int first, count;
  int64_t d;
};

/// A thread's channels d and d + 1 of the head of a sequence, which cu_seqlens alone makes many.
struct HeadPlace {
  uint32_t n;
  int64_t d;
};

/// Inputs of four channels, from the third token before a block's on.
using BlockInputs = uint2[kMaxWidth - 1 + kThreadTokens];
using BlockOutputs = uint2[kThreadTokens];

/// Four channels of a token are a pack. CTAs side by side have neighbouring channels.
/// @tparam kApart groups of channels may lie apart; else they lie side by side
template <bool kApart>
struct ChannelsInPacks {
  static constexpr int kCtas = kApart ? 6 : 7;  ///< that a multiprocessor's registers must allow
  const char* x;
  char* out;
  int64_t x_step, out_step;

  __device__ __forceinline__ ChannelsInPacks(const ConvParams& p, int64_t batch, int64_t token,
                                             int64_t d) {
    const ChannelPart& part = part_of(p, d);
    const TokenChannels &from = part.x, &to = part.out;
    const int64_t inside = d - part.first;
    int64_t x_at = inside, out_at = inside;
    if constexpr (kApart) {
      const auto C = static_cast<uint32_t>(part.C);
      const uint32_t group = static_cast<uint32_t>(inside) / C;
      x_at += group * (from.group_stride - C), out_at += group * (to.group_stride - C);
    }
    x_step = 2 * from.token_stride, out_step = 2 * to.token_stride;
    x = static_cast<const char*>(from.data) + 2 * (batch * from.batch_stride + x_at);
    out = static_cast<char*>(to.data) + 2 * (batch * to.batch_stride + out_at);
    x += token * x_step, out += token * out_step;
  }
  /// Two channels of the token `t` later.
  __device__ __forceinline__ uint32_t pair(int t) const {
    return __ldg(reinterpret_cast<const uint32_t*>(x + t * x_step));
  }
  __device__ __forceinline__ void store_pair(int t, uint32_t word) const {
    *reinterpret_cast<uint32_t*>(out + t * out_step) = word;
  }
  __device__ __forceinline__ void load_rows(int first, int count, BlockInputs& row) const {
    constexpr int kBefore = kMaxWidth - 1;
    const char* at = x - kBefore * x_step;
#pragma unroll
    for (int j = 0; j < kBefore + kThreadTokens; ++j) {
      if (j < kBefore ? first > 0 : j - kBefore < count) {
        row[j] = __ldg(reinterpret_cast<const uint2*>(at));
      }
      ptx::advance(at, x_step);
    }
  }
  __device__ __forceinline__ void store_rows(const StoredRows& rows, const BlockOutputs& y) {
#pragma unroll
    for (int t = 0; t < kThreadTokens; ++t) {
      const bool live = rows.live >> t & 1;
      if (live || (rows.zero >> t & 1) != 0) {
        *reinterpret_cast<uint2*>(out) = live ? y[t] : make_uint2(0, 0);
      }
      ptx::advance(out, out_step);
    }
  }
  static __device__ __forceinline__ Span span_of(const ConvParams& p, int64_t batch, int row) {
    const bool packed = p.cu_seqlens.data != nullptr;
    return packed ? span_after(p, begun_at(p, row), row) : Span{batch, 0, p.T};
  }
  static __device__ __forceinline__ Block block(const ConvParams& p, uint32_t y) {
    const auto first = static_cast<int>(y * kThreadTokens);
    const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    return {first, min(kThreadTokens, static_cast<int>(p.T) - first), kThreadChannels * thread};
  }
  static __device__ __forceinline__ HeadPlace head(const ConvParams&) {
    const uint32_t cta = 2 * blockIdx.x + blockIdx.y % 2;
    return {blockIdx.y / 2, 2 * (int64_t{cta} * kThreads + threadIdx.x)};
  }
};

/// Eight tokens of a channel are a pack. Lanes side by side have neighbouring packs.
struct TokensInPacks {
  static constexpr int kCtas = 5;
  const char* x;
  char* out;
  int64_t x_step, out_step;  ///< from channel to channel

  __device__ __forceinline__ TokensInPacks(const ConvParams& p, int64_t batch, int64_t token,
                                           int64_t d) {
    const ChannelPart& part = part_of(p, d);
    const int64_t inside = d - part.first;
    x = static_cast<const char*>(part.x.data) +
        2 * (element_of(part.x, part.C, batch, inside) + token);
    out = static_cast<char*>(part.out.data) +
          2 * (element_of(part.out, part.C, batch, inside) + token);
    x_step = 2 * part.x.channel_stride, out_step = 2 * part.out.channel_stride;
  }
  static __device__ __forceinline__ uint32_t number(const char* at, int t) {
    return __ldg(reinterpret_cast<const unsigned short*>(at) + t);
  }
  __device__ __forceinline__ uint32_t pair(int t) const {
    return number(x, t) | number(x + x_step, t) << 16;
  }
  __device__ __forceinline__ void store_pair(int t, uint32_t word) const {
    reinterpret_cast<unsigned short*>(out)[t] = static_cast<unsigned short>(word);
    reinterpret_cast<unsigned short*>(out + out_step)[t] = static_cast<unsigned short>(word >> 16);
  }
  /// BOUND: tokens past the last row may be another tensor's, so they are not touched.
  __device__ __forceinline__ void load_rows(int first, int count, BlockInputs& row) const {
    uint32_t word[kThreadChannels][kMaxWidth / 2 + kThreadTokens / 2] = {};
#pragma unroll
    for (int c = 0; c < kThreadChannels; ++c) {
      const char* at = x + c * x_step;
      if (first > 0) {
        const uint2 before = __ldg(reinterpret_cast<const uint2*>(at) - 1);
        word[c][0] = before.x, word[c][1] = before.y;
      }
      if (count == kThreadTokens) {
        const uint4 pack = __ldg(reinterpret_cast<const uint4*>(at));
        word[c][2] = pack.x, word[c][3] = pack.y, word[c][4] = pack.z, word[c][5] = pack.w;
        continue;
      }
#pragma unroll
      for (int t = 0; t < kThreadTokens; ++t) {
        if (t < count) word[c][2 + t / 2] |= number(at, t) << t % 2 * 16;
      }
    }
#pragma unroll
    for (int j = 0; j < kMaxWidth - 1 + kThreadTokens; ++j) {
      const int i = (j + 1) / 2, half = j % 2 == 0 ? 0x7632 : 0x5410;
      row[j] = {__byte_perm(word[0][i], word[1][i], half),
                __byte_perm(word[2][i], word[3][i], half)};
    }
  }
  __device__ __forceinline__ void store_rows(const StoredRows& rows, const BlockOutputs& y) const {
#pragma unroll
    for (int c = 0; c < kThreadChannels; ++c) {
      char* at = out + c * out_step;
      uint32_t word[kThreadTokens / 2];
#pragma unroll
      for (int i = 0; i < kThreadTokens / 2; ++i) {
        const uint2 &first = y[2 * i], &second = y[2 * i + 1];
        const int half = c % 2 == 0 ? 0x5410 : 0x7632;
        word[i] =
            c < 2 ? __byte_perm(first.x, second.x, half) : __byte_perm(first.y, second.y, half);
      }
      if (rows.live == (1u << kThreadTokens) - 1) {
        ptx::store_16(at, {word[0], word[1], word[2], word[3]});
        continue;
      }
#pragma unroll
      for (int t = 0; t < kThreadTokens; ++t) {
        const bool live = rows.live >> t & 1;
        if (!live && (rows.zero >> t & 1) == 0) continue;
        const uint32_t number = live ? word[t / 2] >> t % 2 * 16 : 0;
        reinterpret_cast<unsigned short*>(at)[t] = static_cast<unsigned short>(number);
      }
    }
  }
  static __device__ __forceinline__ Span span_of(const ConvParams& p, int64_t batch, int row) {
    return span_at(p, batch, row);
  }
  static __device__ __forceinline__ Block block(const ConvParams& p, uint32_t y) {
    const int64_t first = (int64_t{blockIdx.x} * 32 + threadIdx.x % 32) * kThreadTokens;
    if (first >= p.T) return {0, 0, p.D};
    const int64_t d = kThreadChannels * (int64_t{y} * kWarps + threadIdx.x / 32);
    return {static_cast<int>(first), static_cast<int>(min(int64_t{kThreadTokens}, p.T - first)), d};
  }
  static __device__ __forceinline__ HeadPlace head(const ConvParams& p) {
    const auto each = static_cast<uint32_t>((p.D + 2 * kThreads - 1) / (2 * kThreads));
    const uint32_t cta = blockIdx.y * gridDim.x + blockIdx.x, n = cta / each;
    if (n >= (p.cu_seqlens.data == nullptr ? 1 : p.N)) return {0, p.D};
    return {n, 2 * (int64_t{cta - n * each} * kThreads + threadIdx.x)};
  }
};

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
    convolve<true>(p, taps, inputs, t + kBefore, y);
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
  float window[2][kMaxWidth][2];  // of two channels each; row t in place t % kMaxWidth
  BlockOutputs out;
#pragma unroll
  for (int j = 0; j < kMaxWidth - 1 + kThreadTokens; ++j) {
    Pack::unpack_word(row[j].x, window[0][j % kMaxWidth]);
    Pack::unpack_word(row[j].y, window[1][j % kMaxWidth]);
    const int t = j - (kMaxWidth - 1);
    if (t < 0) continue;
    float y[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) convolve<true>(p, taps[i], window[i], j % kMaxWidth, y[i]);
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
  const StoredRows rows = stored_rows<Layout>(p, batch, block.first, block.count);
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

/// By Instance.
template <class Numbers>
inline constexpr ConvKernel kKernels[kInstances] = {
    block_kernel<Numbers, TokensInPacks>,
    block_kernel<Numbers, ChannelsInPacks<false>>,
    block_kernel<Numbers, ChannelsInPacks<true>>,
    update_kernel<Numbers, RingState, true>,
    update_kernel<Numbers, PairState<3, false>, false>,
    update_kernel<Numbers, PairState<4, false>, false>,
    update_kernel<Numbers, PairState<3, true>, false>,
    update_kernel<Numbers, PairState<4, true>, false>,
    update_kernel<Numbers, PairState<3, false>, true>,
    update_kernel<Numbers, PairState<4, false>, true>,
    update_kernel<Numbers, PairState<3, true>, true>,
    update_kernel<Numbers, PairState<4, true>, true>};

using Instances = ConvKernel[kInstances];

/// Of inputs in bfloat16 with weights of that type and in float32, then of inputs in float16.
inline constexpr const Instances* kTypes[] = {&kKernels<PairNumbers<device::BfloatPack, false>>,
                                              &kKernels<PairNumbers<device::BfloatPack, true>>,
                                              &kKernels<PairNumbers<device::HalfPack, false>>,
                                              &kKernels<PairNumbers<device::HalfPack, true>>};

inline ConvKernel kernel_of(const PlannedConv& conv) noexcept {
  if (conv.form == Form::kAny) return any_form_kernel;
  const ConvParams& p = conv.params;
  const int inputs = p.part[0].x.number == Number::kBfloat16 ? 0 : 2;
  const int weights = p.weight.number == Number::kFloat32 ? 1 : 0;
  return (*kTypes[inputs + weights])[conv.instance];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_BLOCKS_CUH_
