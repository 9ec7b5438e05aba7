// Per-target: the convolution of one sequence's rows over a block of channels, and its state. Used
// by causal_conv1d and by the fused decode step.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#undef SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/convert-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Widest convolution.
constexpr int64_t kMaxWidth = 4;
/// Channels of one block: a tile of 16 rows is 19 KB, so that it and the weights stay in L1.
constexpr int64_t kConvChannels = 256;

/// One sequence of a problem.
struct ConvSequence {
  const core::CausalConvProblem& problem;
  int64_t n;
  core::TokenRange range;
  core::SlotPlan plan;

  ConvSequence(const core::CausalConvProblem& p, int64_t sequence) noexcept
      : problem(p),
        n(sequence),
        range(core::token_range(p.rows, sequence)),
        // WHY no num_accepted here: it chooses columns inside a convolution state, never the slot.
        plan(core::plan_slots(p.state, core::Tensor{}, sequence)) {}

  bool ring() const noexcept { return problem.state.form == SLUICE_CONV_STATE_RING; }
  bool speculative() const noexcept { return core::present(problem.state.num_accepted); }
  int64_t entry(const core::Tensor& indices) const noexcept {
    return core::load_index(core::address(indices, n), indices.dtype);
  }
  /// a = max(num_accepted, 1). BOUND: at most L-W+2, where its last column a+W-3 is column L-1.
  int64_t accepted() const noexcept {
    const int64_t accepted = std::max<int64_t>(entry(problem.state.num_accepted), 1);
    return std::min(accepted, problem.L - problem.W + 2);
  }
  int64_t ring_column(int64_t position) const noexcept {
    const int64_t L = problem.L;
    return ((position % L) + L) % L;
  }
  /// Column of the old state with the input `age` tokens before the first one, age 1 .. W-1.
  int64_t history_column(int64_t age) const noexcept {
    if (ring()) return ring_column(entry(problem.state.ring_position) - age);
    if (speculative()) return accepted() + problem.W - 2 - age;
    return problem.L - age;
  }
};

/// Calls run(group, first channel in the group, offset from `first`, length) for the runs of
/// channels first .. first + count - 1 that lie in one group each.
template <class Run>
void for_channel_runs(const core::CausalConvProblem& problem, int64_t first, int64_t count,
                      Run run) noexcept {
  for (int64_t offset = 0; offset < count;) {
    const int64_t group = (first + offset) / problem.C;
    const int64_t inside = (first + offset) % problem.C;
    const int64_t length = std::min(count - offset, problem.C - inside);
    run(group, inside, offset, length);
    offset += length;
  }
}

/// Inputs of token t, channels first .. first + count - 1.
inline void read_inputs(const ConvSequence& s, int64_t t, int64_t first, int64_t count,
                        float* target) noexcept {
  const core::Tensor& x = s.problem.x;
  for_channel_runs(s.problem, first, count,
                   [&](int64_t group, int64_t inside, int64_t offset, int64_t length) {
                     read_strided(core::address(x, s.range.batch, s.range.begin + t, group, inside),
                                  x.dtype, x.stride[3], length, target + offset);
                   });
}

inline void write_outputs(const ConvSequence& s, int64_t t, int64_t first, int64_t count,
                          const float* source) noexcept {
  const core::Tensor& out = s.problem.out;
  for_channel_runs(
      s.problem, first, count, [&](int64_t group, int64_t inside, int64_t offset, int64_t length) {
        write_strided(source + offset, length,
                      core::address(out, s.range.batch, s.range.begin + t, group, inside),
                      out.dtype, out.stride[3]);
      });
}

/// Column `column` of the state that the sequence starts from.
inline void read_old_column(const ConvSequence& s, int64_t column, int64_t first, int64_t count,
                            float* target) noexcept {
  const core::Tensor& pool = s.problem.state.initial;
  if (s.plan.read < 0) {
    std::fill_n(target, count, 0.0f);
    return;
  }
  read_strided(core::address(pool, s.plan.read, first, column), pool.dtype, pool.stride[1], count,
               target);
}

inline void write_new_column(const ConvSequence& s, int64_t column, int64_t first, int64_t count,
                             const float* source) noexcept {
  const core::Tensor& pool = s.problem.state.final;
  write_strided(source, count, core::address(pool, s.plan.write, first, column), pool.dtype,
                pool.stride[1]);
}

/// The W-1 inputs before the first token, oldest first, `stride` floats apart.
inline void read_history(const ConvSequence& s, int64_t first, int64_t count, float* history,
                         int64_t stride) noexcept {
  for (int64_t age = s.problem.W - 1; age >= 1; --age, history += stride) {
    const int64_t column = s.plan.read < 0 ? 0 : s.history_column(age);
    read_old_column(s, column, first, count, history);
  }
}

/// The state after the row, for channels first .. first + count - 1 (at most kConvChannels). Old
/// columns are read in ascending order just before they are overwritten: right in place too.
inline void write_conv_state(const ConvSequence& s, int64_t first, int64_t count) noexcept {
  HWY_ALIGN float line[kConvChannels];
  const int64_t L = s.problem.L, T = s.range.size();
  const auto carry = [&](int64_t from, int64_t to) {
    read_old_column(s, from, first, count, line);
    write_new_column(s, to, first, count, line);
  };
  const auto insert = [&](int64_t t, int64_t to) {
    read_inputs(s, t, first, count, line);
    write_new_column(s, to, first, count, line);
  };
  if (s.ring()) {
    const core::Tensor &from = s.problem.state.initial, &to = s.problem.state.final;
    const bool in_place = s.plan.read == s.plan.write && from.data == to.data;
    for (int64_t column = 0; column < L && !in_place; ++column) carry(column, column);
    const int64_t position = s.entry(s.problem.state.ring_position);
    for (int64_t t = std::max<int64_t>(T - L, 0); t < T; ++t) {
      insert(t, s.ring_column(position + t));
    }
    return;
  }
  // An empty sequence passes its state through, whatever num_accepted says.
  if (s.speculative() && T > 0) {
    const int64_t kept = s.problem.W - 2, oldest = s.accepted();
    for (int64_t column = 0; column < kept; ++column) carry(oldest + column, column);
    for (int64_t t = 0; t < T; ++t) insert(t, kept + t);
    return;
  }
  for (int64_t column = 0; column < L; ++column) {
    if (column + T < L) {
      carry(column + T, column);
    } else {
      insert(column + T - L, column);
    }
  }
}

/// Weights [W][stride] and bias [stride] of a block of channels, zeros past `count`.
struct ConvWeights {
  HWY_ALIGN float weight[kMaxWidth * kConvChannels];
  HWY_ALIGN float bias[kConvChannels];

  void load(const core::CausalConvProblem& problem, int64_t first, int64_t count,
            int64_t stride) noexcept {
    std::fill_n(weight, problem.W * stride, 0.0f);
    std::fill_n(bias, stride, 0.0f);
    const core::Tensor& w = problem.weight;
    for (int64_t column = 0; column < problem.W; ++column) {
      read_strided(core::address(w, first, column), w.dtype, w.stride[0], count,
                   weight + column * stride);
    }
    if (core::present(problem.bias)) {
      read_strided(core::address(problem.bias, first), problem.bias.dtype, problem.bias.stride[0],
                   count, bias);
    }
  }
};

/// Lanes are channels. tile: W-1 rows of history, then `rows` rows of input, each of `stride`
/// floats; output t replaces row t, whose last use it is.
template <bool kSilu>
void convolve_tile(float* tile, int64_t stride, int64_t rows, int64_t W,
                   const ConvWeights& weights) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t t = 0; t < rows; ++t) {
    float* row = tile + t * stride;
    for (int64_t c = 0; c < stride; c += lanes) {
      auto sum = hn::Load(d, weights.bias + c);
      for (int64_t w = 0; w < W; ++w) {
        sum = hn::MulAdd(hn::Load(d, weights.weight + w * stride + c),
                         hn::Load(d, row + w * stride + c), sum);
      }
      if constexpr (kSilu) sum = silu(d, sum);
      hn::Store(sum, d, row + c);
    }
  }
}

/// Rows of one tile.
constexpr int64_t kConvTileRows = 16;

/// A block of at most kConvChannels channels of one sequence, worked through from its first token
/// on: fill(), convolve(), row(), and advance() before the next fill().
class ConvTile {
 public:
  ConvTile(const ConvSequence& sequence, int64_t first, int64_t count) noexcept
      : sequence_(sequence), first_(first), count_(count), stride_(whole_vectors(count)) {
    weights_.load(sequence.problem, first, count, stride_);
    // Lanes past `count` are computed and dropped: zeros keep them finite.
    const int64_t rows = std::min(sequence.range.size(), kConvTileRows) + sequence.problem.W - 1;
    std::fill_n(tile_, rows * stride_, 0.0f);
    read_history(sequence, first, count, tile_, stride_);
  }

  /// Reads tokens begin .. begin + rows - 1, rows <= kConvTileRows.
  void fill(int64_t begin, int64_t rows) noexcept {
    float* inputs = tile_ + (sequence_.problem.W - 1) * stride_;
    for (int64_t t = 0; t < rows; ++t) {
      read_inputs(sequence_, begin + t, first_, count_, inputs + t * stride_);
    }
  }

  void convolve(int64_t rows) noexcept {
    if (sequence_.problem.activation == SLUICE_ACTIVATION_SILU) {
      convolve_tile<true>(tile_, stride_, rows, sequence_.problem.W, weights_);
    } else {
      convolve_tile<false>(tile_, stride_, rows, sequence_.problem.W, weights_);
    }
  }

  /// Output row t of the tile.
  const float* row(int64_t t) const noexcept { return tile_ + t * stride_; }

  /// Makes the last inputs of a tile of `rows` rows the history of the next one.
  void advance(int64_t rows) noexcept {
    std::copy_n(tile_ + rows * stride_, (sequence_.problem.W - 1) * stride_, tile_);
  }

 private:
  const ConvSequence& sequence_;
  int64_t first_, count_, stride_;
  ConvWeights weights_;
  HWY_ALIGN float tile_[(kConvTileRows + kMaxWidth - 1) * kConvChannels];
};

/// Lanes are tokens of one channel. line: W-1 floats of history, then `count` inputs, readable and
/// writable up to a whole vector more; output t replaces float t.
template <bool kSilu>
void convolve_line(float* line, int64_t count, int64_t W, const float* weight,
                   float bias) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t t = 0; t < count; t += lanes) {
    auto sum = hn::Set(d, bias);
    for (int64_t w = 0; w < W; ++w) {
      sum = hn::MulAdd(hn::Set(d, weight[w]), hn::LoadU(d, line + t + w), sum);
    }
    if constexpr (kSilu) sum = silu(d, sum);
    hn::StoreU(sum, d, line + t);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
