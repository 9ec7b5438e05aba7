// Computes gradients of the short causal convolution.
// Math:     docs/math.md section 10: dx_t = sum_w weight_w c_{t+W-1-w}, c = d_out act'(pre).
// Roles:    one item = (512 tokens of a batch entry, 256 channels): rows of dx and sums over these
//           tokens; another = (sequence, 256 channels): its d_initial; then one per 256 channels
//           adds the sums up.
// Pipeline: token by token: rows of x and d_out to float32 -> pre and c by vectors of channels ->
//           sums and the row of dx W - 1 tokens back.
// Memory:   the last W rows of x and of c and the sums, 18 KB of the worker's stack; W + 1 numbers a
//           channel and 512 tokens of workspace.
// Numbers:  NUM: tokens of an item, then items, are added up in ascending order, whatever the
//           threads.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#include "cpu/kernels/row_tiles.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/causal_conv1d_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/kernels/conv_rows-inl.h"
#include "cpu/parallel_for.hpp"

#ifndef SLUICE_CPU_CONV_BACKWARD_TOKENS_
#define SLUICE_CPU_CONV_BACKWARD_TOKENS_
namespace sluice::cpu {
namespace {

constexpr int64_t kSlabTokens = 512;

int64_t slabs_of(const core::Rows& rows) noexcept {
  return (rows.T + kSlabTokens - 1) / kSlabTokens;
}

}  // namespace
}  // namespace sluice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

using core::CausalConvBackwardProblem;

/// A block of at most kConvChannels channels: what tokens of sequences give, one run after another.
class ConvGradients {
 public:
  ConvGradients(const CausalConvBackwardProblem& problem, int64_t first, int64_t count) noexcept
      : problem_(problem), first_(first), count_(count), stride_(whole_vectors(count)) {
    weights_.load(problem.forward, first, count, stride_);
    // Lanes past `count` are computed and dropped: zeros keep them finite.
    for (float* rows : {x_, inner_, sums_, line_}) std::fill_n(rows, stride_, 0.0f);
    std::fill_n(x_, kMaxWidth * stride_, 0.0f);
    std::fill_n(sums_, (kMaxWidth + 1) * stride_, 0.0f);
  }

  /// Gradients of tokens begin .. end - 1 of a sequence, negative ones being columns of its state,
  /// and sums over those that are none.
  void run(const ConvSequence& s, int64_t begin, int64_t end) noexcept {
    const int64_t W = problem_.forward.W, T = s.range.size();
    for (int64_t t = begin - W + 1; t < begin && begin >= 0; ++t) read_token(s, t);
    for (int64_t t = begin; t < end + W - 1; ++t) {
      if (t < T) read_token(s, t);
      if (t >= 0 && t < T) {
        make_inner(s, t);
        if (t < end) add_sums(t);
      } else {
        std::fill_n(row(inner_, t), stride_, 0.0f);
      }
      if (t - W + 1 >= begin) finish(s, t - W + 1);
    }
  }

  /// Columns of d_initial that no output depends on.
  void pass_columns(const ConvSequence& s) noexcept {
    const int64_t L = problem_.forward.L, T = s.range.size();
    for (int64_t column = 0; column < L - problem_.forward.W + 1; ++column) {
      std::fill_n(line_, count_, 0.0f);
      if (column >= T) read_final(s, column - T);
      write_initial(s, column);
    }
  }

  void zero_row(int64_t batch, int64_t t) noexcept {
    std::fill_n(line_, count_, 0.0f);
    write_row(batch, t);
  }

  /// sums[w D + d]: of dweight, w < W, and of dbias.
  void store_sums(float* sums) const noexcept {
    const int64_t D = problem_.forward.G * problem_.forward.C;
    for (int64_t w = 0; w <= problem_.forward.W; ++w) {
      std::copy_n(sums_ + w * stride_, count_, sums + w * D + first_);
    }
  }

 private:
  /// Row of token t in a ring of W.
  float* row(float* rows, int64_t t) const noexcept {
    const int64_t W = problem_.forward.W;
    return rows + (t + 2 * W) % W * stride_;
  }

  void read_token(const ConvSequence& s, int64_t t) noexcept {
    if (t >= 0) {
      read_inputs(s, t, first_, count_, row(x_, t));
    } else {
      read_old_column(s, problem_.forward.L + t, first_, count_, row(x_, t));
    }
  }

  void make_inner(const ConvSequence& s, int64_t t) noexcept {
    const core::Tensor& d_out = problem_.d_out;
    for_channel_runs(problem_.forward, first_, count_,
                     [&](int64_t group, int64_t inside, int64_t at, int64_t length) {
                       read_strided(
                           core::address(d_out, s.range.batch, s.range.begin + t, group, inside),
                           d_out.dtype, d_out.stride[3], length, line_ + at);
                     });
    const FloatTag d;
    const int64_t W = problem_.forward.W;
    const bool with_silu = problem_.forward.activation == SLUICE_ACTIVATION_SILU;
    float* const target = row(inner_, t);
    for (int64_t c = 0; c < stride_; c += float_lanes()) {
      auto value = hn::Load(d, line_ + c);
      if (with_silu) {
        auto pre = hn::Load(d, weights_.bias + c);
        for (int64_t w = 0; w < W; ++w) {
          pre = hn::MulAdd(hn::Load(d, weights_.weight + w * stride_ + c),
                           hn::Load(d, row(x_, t - W + 1 + w) + c), pre);
        }
        value = hn::Mul(value, silu_slope(d, pre));
      }
      hn::Store(value, d, target + c);
    }
  }

  void add_sums(int64_t t) noexcept {
    const FloatTag d;
    const int64_t W = problem_.forward.W;
    const float* const inner = row(inner_, t);
    for (int64_t w = 0; w <= W; ++w) {
      float* const sums = sums_ + w * stride_;
      const float* const x = w < W ? row(x_, t - W + 1 + w) : nullptr;
      for (int64_t c = 0; c < stride_; c += float_lanes()) {
        const auto by = x == nullptr ? hn::Set(d, 1.0f) : hn::Load(d, x + c);
        hn::Store(hn::MulAdd(hn::Load(d, inner + c), by, hn::Load(d, sums + c)), d, sums + c);
      }
    }
  }

  void finish(const ConvSequence& s, int64_t t) noexcept {
    const FloatTag d;
    const int64_t W = problem_.forward.W, column = t - s.range.size() + problem_.forward.L;
    if (t >= 0 && !core::present(problem_.dx)) return;
    if (core::present(problem_.d_final) && column >= 0) {
      read_final(s, column);
    } else {
      std::fill_n(line_, stride_, 0.0f);
    }
    for (int64_t c = 0; c < stride_; c += float_lanes()) {
      auto sum = hn::Load(d, line_ + c);
      for (int64_t w = 0; w < W; ++w) {
        sum = hn::MulAdd(hn::Load(d, weights_.weight + w * stride_ + c),
                         hn::Load(d, row(inner_, t + W - 1 - w) + c), sum);
      }
      hn::Store(sum, d, line_ + c);
    }
    t < 0 ? write_initial(s, problem_.forward.L + t) : write_row(s.range.batch, s.range.begin + t);
  }

  void read_final(const ConvSequence& s, int64_t column) noexcept {
    const core::Tensor& from = problem_.d_final;
    if (!core::present(from)) return;
    read_strided(core::address(from, s.n, first_, column), from.dtype, from.stride[1], count_,
                 line_);
  }

  void write_initial(const ConvSequence& s, int64_t column) const noexcept {
    const core::Tensor& to = problem_.dinitial;
    write_strided(line_, count_, core::address(to, s.n, first_, column), to.dtype, to.stride[1]);
  }

  void write_row(int64_t batch, int64_t t) const noexcept {
    const core::Tensor& to = problem_.dx;
    for_channel_runs(problem_.forward, first_, count_,
                     [&](int64_t group, int64_t inside, int64_t at, int64_t length) {
                       write_strided(line_ + at, length, core::address(to, batch, t, group, inside),
                                     to.dtype, to.stride[3]);
                     });
  }

  const CausalConvBackwardProblem& problem_;
  int64_t first_, count_, stride_;
  ConvWeights weights_;
  HWY_ALIGN float x_[kMaxWidth * kConvChannels];
  HWY_ALIGN float inner_[kMaxWidth * kConvChannels];
  HWY_ALIGN float sums_[(kMaxWidth + 1) * kConvChannels];
  HWY_ALIGN float line_[kConvChannels];
};

void run_slab(const CausalConvBackwardProblem& problem, int64_t slab, int64_t first,
              float* sums) noexcept {
  const core::Rows& rows = problem.forward.rows;
  const int64_t D = problem.forward.G * problem.forward.C, slabs = slabs_of(rows);
  const int64_t batch = slab / slabs, begin = slab % slabs * kSlabTokens;
  const int64_t end = std::min(begin + kSlabTokens, rows.T);
  ConvGradients block(problem, first, std::min(kConvChannels, D - first));
  for_sequences(rows, batch, begin, end,
                [&](int64_t n, const core::TokenRange& range, int64_t from, int64_t to) {
                  const ConvSequence s(problem.forward, n);
                  if (from < to) block.run(s, from - range.begin, to - range.begin);
                });
  const int64_t past = std::max(begin, core::rows_end(rows));
  for (int64_t t = past; t < end && core::present(problem.dx); ++t) block.zero_row(batch, t);
  if (sums != nullptr) block.store_sums(sums + slab * (problem.forward.W + 1) * D);
}

/// Adds up the sums of slabs for a block of channels.
void add_slabs(const CausalConvBackwardProblem& problem, int64_t slabs, int64_t first,
               const float* sums) noexcept {
  const core::CausalConvProblem& p = problem.forward;
  const int64_t D = p.G * p.C;
  for (int64_t d = first; d < std::min(first + kConvChannels, D); ++d) {
    for (int64_t w = 0; w <= p.W; ++w) {
      const core::Tensor& to = w < p.W ? problem.dweight : problem.dbias;
      if (!core::present(to)) continue;
      float sum = 0.0f;
      for (int64_t i = 0; i < slabs; ++i) sum += sums[(i * (p.W + 1) + w) * D + d];
      core::store_float(w < p.W ? core::address(to, d, w) : core::address(to, d), to.dtype, sum);
    }
  }
}

}  // namespace

void conv_gradients(const CausalConvBackwardProblem& problem, float* sums) {
  const core::CausalConvProblem& p = problem.forward;
  const int64_t D = p.G * p.C, blocks = (D + kConvChannels - 1) / kConvChannels;
  const int64_t slabs = p.rows.B * slabs_of(p.rows);
  const int64_t states = core::present(problem.dinitial) ? p.rows.N : 0;
  auto item = [&](int64_t index, int) {
    const int64_t first = index % blocks * kConvChannels;
    if (index < slabs * blocks) return run_slab(problem, index / blocks, first, sums);
    const ConvSequence s(p, index / blocks - slabs);
    ConvGradients block(problem, first, std::min(kConvChannels, D - first));
    block.run(s, 1 - p.W, 0);
    block.pass_columns(s);
  };
  // PERF: below this many inputs (about 20 us) waking threads costs more than they save.
  constexpr int64_t kWorthThreads = 8192;
  const int workers = p.rows.B * p.rows.T * D < kWorthThreads ? 1 : worker_count();
  parallel_for((slabs + states) * blocks, workers, item);
  auto last = [&](int64_t index, int) { add_slabs(problem, slabs, index * kConvChannels, sums); };
  if (sums != nullptr) parallel_for(blocks, workers, last);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(conv_gradients);

namespace {

bool has_sums(const core::CausalConvBackwardProblem& p) noexcept {
  return core::present(p.dweight) || core::present(p.dbias);
}

}  // namespace

size_t causal_conv1d_backward_workspace(const core::CausalConvBackwardProblem& problem) noexcept {
  const core::CausalConvProblem& p = problem.forward;
  if (!has_sums(problem)) return 0;
  const int64_t slabs = p.rows.B * slabs_of(p.rows);
  return static_cast<size_t>(slabs * (p.W + 1) * p.G * p.C) * sizeof(float);
}

void causal_conv1d_backward(const core::CausalConvBackwardProblem& problem,
                            void* scratch) noexcept {
  // No tokens: no memory is needed for sums, which are zero.
  float none = 0.0f;
  float* const sums = scratch == nullptr ? &none : static_cast<float*>(scratch);
  HWY_DYNAMIC_DISPATCH(conv_gradients)(problem, has_sums(problem) ? sums : nullptr);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
