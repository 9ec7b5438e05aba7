// Convolves rows whose channels are neighbours in memory, from x to out without a copy, tokens past
// the first of each sequence. Same sums in the same order as conv_rows-inl.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONV_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONV_STREAM_INL_H_
#undef SLUICE_CPU_KERNELS_CONV_STREAM_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONV_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/conv_rows-inl.h"
#include "cpu/kernels/row_tiles.hpp"
#include "cpu/kernels/step_elements-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "cpu/parallel_for.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kStreamWidth = 4;
/// Tokens that are computed together: each row of x is read (3 + kStreamRows) / kStreamRows times,
/// and as many exponentials are under way at once.
constexpr int64_t kStreamRows = 2;
/// Tokens of an item at most. PERF fewer load the weights more often, more leave the second-level
/// address translation buffer: all channels of a token are pages of their own.
constexpr int64_t kStreamTokens = 128;
/// Tokens of a sequence that do not stream: more than reach into the state.
constexpr int64_t kHeadTokens = static_cast<int64_t>(kStreamWidth);

/// Whether stream_rows() does the rows of this problem.
inline bool rows_stream(const core::CausalConvProblem& p) noexcept {
  const bool typed = core::same(p.x.dtype, p.out.dtype) && (core::same(p.x.dtype, core::kFloat32) ||
                                                            core::same(p.x.dtype, core::kBFloat16));
  return typed && p.W == static_cast<int64_t>(kStreamWidth) && p.x.stride[3] == 1 &&
         p.out.stride[3] == 1 && p.C % (2 * kLanes) == 0 && p.rows.T > kConvTileRows;
}

/// How many tokens of the sequence do not.
inline int64_t head_tokens(const ConvSequence& s) noexcept {
  const int64_t T = s.range.size();
  return T <= kConvTileRows ? T : kHeadTokens;
}

/// kRows tokens of one run of channels, two vectors of them at once in load_pair()'s order; x at
/// the first token, its predecessors before it.
template <bool kSilu, size_t kRows, class Element>
HWY_INLINE void stream_run(const Element* x, int64_t x_row, int64_t count, const float* weight,
                           int64_t weight_row, const float* bias, Element* out, int64_t out_row) {
  const FloatTag d;
  constexpr size_t kWindow = kRows + kStreamWidth - 1;
  x -= static_cast<int64_t>(kStreamWidth - 1) * x_row;
  for (int64_t c = 0; c < count; c += 2 * kLanes) {
    FloatVec window[kWindow][2], w[kStreamWidth][2], start[2];
    SLUICE_UNROLL
    for (size_t i = 0; i < kWindow; ++i) {
      load_pair(x + static_cast<int64_t>(i) * x_row + c, window[i][0], window[i][1]);
    }
    SLUICE_UNROLL
    for (size_t i = 0; i < kStreamWidth; ++i) {
      load_columns<Element>(weight + static_cast<int64_t>(i) * weight_row + c, w[i][0], w[i][1]);
    }
    load_columns<Element>(bias + c, start[0], start[1]);
    SLUICE_UNROLL
    for (size_t t = 0; t < kRows; ++t) {
      FloatVec sum[2];
      SLUICE_UNROLL
      for (size_t half = 0; half < 2; ++half) {
        sum[half] = start[half];
        SLUICE_UNROLL
        for (size_t i = 0; i < kStreamWidth; ++i) {
          sum[half] = hn::MulAdd(w[i][half], window[t + i][half], sum[half]);
        }
        if constexpr (kSilu) sum[half] = silu(d, sum[half]);
      }
      store_pair(sum[0], sum[1], out + static_cast<int64_t>(t) * out_row + c);
    }
  }
}

/// Tokens begin .. end - 1 of a batch entry, which lie past the heads of their sequence.
template <bool kSilu, class Element>
void stream_tokens(const core::CausalConvProblem& p, int64_t batch, int64_t begin,
                   int64_t end) noexcept {
  const int64_t D = p.G * p.C, x_row = p.x.stride[1], out_row = p.out.stride[1];
  ConvWeights weights;
  for (int64_t first = 0; first < D; first += kConvChannels) {
    const int64_t count = std::min(kConvChannels, D - first);
    weights.load(p, first, count, count);
    for_channel_runs(
        p, first, count, [&](int64_t group, int64_t inside, int64_t at, int64_t run) HWY_ATTR {
          const auto* x =
              static_cast<const Element*>(core::address(p.x, batch, begin, group, inside));
          auto* out = static_cast<Element*>(core::address(p.out, batch, begin, group, inside));
          int64_t t = begin;
          for (; t + kStreamRows <= end; t += kStreamRows) {
            stream_run<kSilu, kStreamRows>(x, x_row, run, weights.weight + at, count,
                                           weights.bias + at, out, out_row);
            x += kStreamRows * x_row;
            out += kStreamRows * out_row;
          }
          for (; t < end; ++t, x += x_row, out += out_row) {
            stream_run<kSilu, 1>(x, x_row, run, weights.weight + at, count, weights.bias + at, out,
                                 out_row);
          }
        });
  }
}

template <class Element>
auto stream_function(bool with_silu) noexcept {
  return with_silu ? stream_tokens<true, Element> : stream_tokens<false, Element>;
}

/// All tokens but the heads of their sequences. Needs rows_stream().
inline void stream_rows(const core::CausalConvProblem& p, int workers) {
  const core::Rows& rows = p.rows;
  const bool with_silu = p.activation == SLUICE_ACTIVATION_SILU;
  const auto run = core::same(p.x.dtype, core::kFloat32) ? stream_function<float>(with_silu)
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
                   : isa_has_bfloat16_dots() ? stream_function<RoundedByMachine>(with_silu)
#endif
                                             : stream_function<uint16_t>(with_silu);
  const int64_t share = rows.B * rows.T / (int64_t{4} * workers) / kStreamRows * kStreamRows;
  const int64_t tokens = std::clamp(share, 4 * kStreamRows, kStreamTokens);
  const int64_t items_each = (rows.T + tokens - 1) / tokens;
  auto item = [&](int64_t index, int) {
    const int64_t batch = index / items_each, begin = index % items_each * tokens;
    for_sequences(rows, batch, begin, std::min(begin + tokens, rows.T),
                  [&](int64_t n, const core::TokenRange& range, int64_t from, int64_t to) {
                    const ConvSequence s(p, n);
                    const int64_t first = std::max(from, range.begin + head_tokens(s));
                    if (first < to && !s.plan.padded) run(p, batch, first, to);
                  });
  };
  parallel_for(rows.B * items_each, workers, item);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONV_STREAM_INL_H_
