// Computes the short causal convolution and its states.
// Math:     out[t,d] = act(bias[d] + sum_w weight[d,w] x[t-W+1+w,d]), history from the state.
// Roles:    rows whose channels are neighbours (conv_stream-inl.h): one item = a run of tokens, all
//           channels; before them, an item = (sequence, block of 256 channels): its first tokens,
//           then its state, so that pools may be updated in place. Else such items do all tokens.
// Pipeline: streams: rows of x -> multiply-adds and SiLU in registers -> rows of out. Else gather a
//           tile to float32 -> multiply-adds and SiLU in place -> scatter. Lanes are channels;
//           where tokens are contiguous instead (channel-first views), tokens.
// Memory:   streams: 5 KB of weights; tiles: 19 KB more, on the worker's stack.
// Floor:    one read of x and one write of out; SiLU's exponential is about half the arithmetic.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/causal_conv1d.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/isa.hpp"
#include "cpu/kernels/conv_rows-inl.h"
#include "cpu/kernels/conv_stream-inl.h"
#include "cpu/parallel_for.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kLineTokens = 1024;

void zero_rows(const ConvSequence& s, int64_t first, int64_t count) noexcept {
  HWY_ALIGN static constexpr float kZeros[kConvChannels] = {};
  for (int64_t t = 0; t < s.range.size(); ++t) write_outputs(s, t, first, count, kZeros);
}

/// The first `tokens` tokens of some channels.
void convolve_channels(const ConvSequence& s, int64_t first, int64_t count,
                       int64_t tokens) noexcept {
  ConvTile tile;
  tile.start(s, first, count);
  for (int64_t begin = 0; begin < tokens; begin += kConvTileRows) {
    const int64_t rows = std::min(kConvTileRows, tokens - begin);
    tile.fill(begin, rows);
    tile.convolve(rows);
    for (int64_t t = 0; t < rows; ++t) tile.store(t, begin + t);
    tile.advance(rows);
  }
}

void convolve_tokens(const ConvSequence& s, int64_t d) noexcept {
  HWY_ALIGN float line[kLineTokens + kMaxWidth + 2 * HWY_MAX_BYTES / sizeof(float)];
  const core::CausalConvProblem& p = s.problem;
  const int64_t W = p.W, T = s.range.size(), group = d / p.C, inside = d % p.C;
  float weight[kMaxWidth];
  for (int64_t w = 0; w < W; ++w) {
    weight[w] = core::load_float(core::address(p.weight, d, w), p.weight.dtype);
  }
  const float bias =
      core::present(p.bias) ? core::load_float(core::address(p.bias, d), p.bias.dtype) : 0.0f;
  read_history(s, d, 1, line, 1);
  for (int64_t begin = 0; begin < T; begin += kLineTokens) {
    const int64_t count = std::min(kLineTokens, T - begin);
    const int64_t token = s.range.begin + begin;
    read_strided(core::address(p.x, s.range.batch, token, group, inside), p.x.dtype, p.x.stride[1],
                 count, line + W - 1);
    std::fill_n(line + W - 1 + count, float_lanes(), 0.0f);
    float history[kMaxWidth - 1];
    std::copy_n(line + count, W - 1, history);
    if (p.activation == SLUICE_ACTIVATION_SILU) {
      convolve_line<true>(line, count, W, weight, bias);
    } else {
      convolve_line<false>(line, count, W, weight, bias);
    }
    write_strided(line, count, core::address(p.out, s.range.batch, token, group, inside),
                  p.out.dtype, p.out.stride[1]);
    std::copy_n(history, W - 1, line);
  }
}

/// Channels first .. first + count - 1, at most kConvChannels; where rows stream, all that touches
/// states: the first tokens and the state after the last.
void run_block(const core::CausalConvProblem& problem, int64_t n, int64_t first, int64_t count,
               bool streams) noexcept {
  const ConvSequence s(problem, n);
  if (s.plan.padded) return zero_rows(s, first, count);
  if (problem.x.stride[1] == 1 && problem.x.stride[3] != 1) {
    for (int64_t d = first; d < first + count; ++d) convolve_tokens(s, d);
  } else {
    convolve_channels(s, first, count, streams ? head_tokens(s) : s.range.size());
  }
  if (s.plan.write >= 0) write_conv_state(s, first, count);
}

}  // namespace

void convolve(const core::CausalConvProblem& problem) {
  const bool streams = rows_stream(problem);
  const int64_t D = problem.G * problem.C;
  const int64_t blocks = (D + kConvChannels - 1) / kConvChannels;
  auto item = [&](int64_t index, int) {
    const int64_t first = index % blocks * kConvChannels;
    run_block(problem, index / blocks, first, std::min(kConvChannels, D - first), streams);
  };
  // PERF: below this many outputs (about 20 us) waking threads costs more than they save.
  constexpr int64_t kWorthThreads = 16384;
  const bool small = problem.rows.B * problem.rows.T * D < kWorthThreads;
  const int workers = small ? 1 : worker_count();
  parallel_for(problem.rows.N * blocks, workers, item);
  if (streams) stream_rows(problem, workers);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(convolve);

void causal_conv1d(const core::CausalConvProblem& problem) noexcept {
  HWY_DYNAMIC_DISPATCH(convolve)(problem);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
