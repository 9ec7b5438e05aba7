// Computes the short causal convolution, its state and its gradients in double (docs/math.md
// sections 4 and 10).
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <algorithm>

#include "ref/access.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {
namespace {

using core::CausalConvBackwardProblem;
using core::CausalConvProblem;
using core::TokenRange;

constexpr int64_t kWidest = 4;

/// One channel of one sequence.
struct Channel {
  const CausalConvProblem& problem;
  TokenRange range;
  core::SlotPlan plan;
  int64_t n, d;

  /// Input at token t of the sequence, t >= 0.
  double input(int64_t t) const noexcept {
    return load(problem.x, range.batch, range.begin + t, d / problem.C, d % problem.C);
  }
  void output(int64_t t, double value) const noexcept {
    store(problem.out, value, range.batch, range.begin + t, d / problem.C, d % problem.C);
  }
  /// Column of the state that the sequence starts from.
  double old_column(int64_t column) const noexcept {
    return plan.read < 0 ? 0.0 : load(problem.state.initial, plan.read, d, column);
  }
  void new_column(int64_t column, double value) const noexcept {
    store(problem.state.final, value, plan.write, d, column);
  }
  bool speculative() const noexcept { return core::present(problem.state.num_accepted); }
  /// Index entry of this sequence.
  int64_t entry(const Tensor& indices) const noexcept {
    return core::load_index(core::address(indices, n), indices.dtype);
  }
  /// a = max(num_accepted, 1). BOUND: at most L-W+2, where its last column a+W-3 is column L-1.
  int64_t accepted() const noexcept {
    const int64_t accepted = std::max<int64_t>(entry(problem.state.num_accepted), 1);
    return std::min(accepted, problem.L - problem.W + 2);
  }
};

int64_t ring_column(int64_t position, int64_t L) noexcept { return ((position % L) + L) % L; }

/// Column of the old state that holds the input `age` tokens before the first one, age 1 .. W-1.
int64_t history_column(const Channel& channel, int64_t age) noexcept {
  const CausalConvProblem& problem = channel.problem;
  if (problem.state.form == SLUICE_CONV_STATE_RING) {
    return ring_column(channel.entry(problem.state.ring_position) - age, problem.L);
  }
  if (channel.speculative()) return channel.accepted() + problem.W - 2 - age;
  return problem.L - age;
}

/// out_t = act(bias + sum_w weight_w x_{t-W+1+w}), inputs before the first one from the state.
void convolve(const Channel& channel) noexcept {
  const CausalConvProblem& problem = channel.problem;
  double history[kWidest] = {};  // history[age], age 1 .. W-1
  for (int64_t age = 1; age < problem.W && core::present(problem.state.initial); ++age) {
    history[age] = channel.old_column(history_column(channel, age));
  }
  const double bias = core::present(problem.bias) ? load(problem.bias, channel.d) : 0.0;
  for (int64_t t = 0; t < channel.range.size(); ++t) {
    double sum = bias;
    for (int64_t w = 0; w < problem.W; ++w) {
      const int64_t source = t - problem.W + 1 + w;
      const double x = source < 0 ? history[-source] : channel.input(source);
      sum += load(problem.weight, channel.d, w) * x;
    }
    channel.output(t, activate(problem.activation, sum));
  }
}

/// The last L columns of (old state, inputs). Ascending order makes it safe in place.
void shift_state(const Channel& channel) noexcept {
  const int64_t L = channel.problem.L, T = channel.range.size();
  for (int64_t column = 0; column < L; ++column) {
    const int64_t source = column + T;
    channel.new_column(column, source < L ? channel.old_column(source) : channel.input(source - L));
  }
}

/// Columns (old a .. a+W-3, the T inputs) at the front; later columns stay as they are.
void shift_speculative_state(const Channel& channel) noexcept {
  const int64_t kept = channel.problem.W - 2, first = channel.accepted();
  for (int64_t column = 0; column < kept; ++column) {
    channel.new_column(column, channel.old_column(first + column));
  }
  for (int64_t t = 0; t < channel.range.size(); ++t) {
    channel.new_column(kept + t, channel.input(t));
  }
}

/// All columns carried over, then input t in column (position + t) mod L, the last L inputs
/// winning.
void ring_state(const Channel& channel) noexcept {
  const int64_t L = channel.problem.L, T = channel.range.size();
  const int64_t position = channel.entry(channel.problem.state.ring_position);
  for (int64_t column = 0; column < L; ++column) {
    channel.new_column(column, channel.old_column(column));
  }
  for (int64_t t = std::max<int64_t>(T - L, 0); t < T; ++t) {
    channel.new_column(ring_column(position + t, L), channel.input(t));
  }
}

void update_state(const Channel& channel) noexcept {
  // An empty sequence passes its state through, whatever num_accepted says.
  const bool empty = channel.range.size() == 0;
  if (channel.problem.state.form == SLUICE_CONV_STATE_RING) {
    ring_state(channel);
  } else if (channel.speculative() && !empty) {
    shift_speculative_state(channel);
  } else {
    shift_state(channel);
  }
}

/// One channel of one sequence. Token t < 0 is column L + t of the initial state.
struct ChannelGradient {
  const CausalConvBackwardProblem& problem;
  TokenRange range;
  int64_t n, d;

  const CausalConvProblem& forward() const noexcept { return problem.forward; }
  double row(const Tensor& rows, int64_t t) const noexcept {
    return load(rows, range.batch, range.begin + t, d / forward().C, d % forward().C);
  }
  double weight(int64_t w) const noexcept { return load(forward().weight, d, w); }

  double input(int64_t t) const noexcept {
    if (t >= 0) return row(forward().x, t);
    const Tensor& initial = forward().state.initial;
    return core::present(initial) ? load(initial, n, d, forward().L + t) : 0.0;
  }

  /// Gradient by the sum that the activation is of, zero outside of the sequence.
  double inner(int64_t t) const noexcept {
    if (t < 0 || t >= range.size()) return 0.0;
    double sum = core::present(forward().bias) ? load(forward().bias, d) : 0.0;
    for (int64_t w = 0; w < forward().W; ++w) sum += weight(w) * input(t - forward().W + 1 + w);
    return row(problem.d_out, t) * activation_slope(forward().activation, sum);
  }

  /// Gradient by input(t), t >= -L.
  double outer(int64_t t) const noexcept {
    const int64_t column = t - range.size() + forward().L;
    const bool kept = core::present(problem.d_final) && column >= 0;
    double sum = kept ? load(problem.d_final, n, d, column) : 0.0;
    for (int64_t w = 0; w < forward().W; ++w) sum += weight(w) * inner(t + forward().W - 1 - w);
    return sum;
  }
};

void sums_of_weights(const CausalConvBackwardProblem& problem, int64_t d) noexcept {
  const CausalConvProblem& p = problem.forward;
  for (int64_t w = 0; w <= p.W; ++w) {
    const bool bias = w == p.W;
    if (!core::present(bias ? problem.dbias : problem.dweight)) continue;
    double sum = 0.0;
    for (int64_t n = 0; n < p.rows.N; ++n) {
      const ChannelGradient channel{problem, core::token_range(p.rows, n), n, d};
      for (int64_t t = 0; t < channel.range.size(); ++t) {
        sum += channel.inner(t) * (bias ? 1.0 : channel.input(t - p.W + 1 + w));
      }
    }
    bias ? store(problem.dbias, sum, d) : store(problem.dweight, sum, d, w);
  }
}

}  // namespace

void causal_conv1d(const CausalConvProblem& problem) noexcept {
  for (int64_t n = 0; n < problem.rows.N; ++n) {
    const TokenRange range = core::token_range(problem.rows, n);
    // WHY: no num_accepted here; it chooses columns inside a convolution state, never the slot.
    const core::SlotPlan plan = core::plan_slots(problem.state, Tensor{}, n);
    for (int64_t d = 0; d < problem.G * problem.C; ++d) {
      const Channel channel{problem, range, plan, n, d};
      if (plan.padded) {
        for (int64_t t = 0; t < range.size(); ++t) channel.output(t, 0.0);
        continue;
      }
      convolve(channel);
      if (plan.write >= 0) update_state(channel);
    }
  }
}

void causal_conv1d_backward(const CausalConvBackwardProblem& problem) noexcept {
  const CausalConvProblem& p = problem.forward;
  for (int64_t d = 0; d < p.G * p.C; ++d) {
    const auto store_dx = [&](double value, int64_t batch, int64_t t) {
      if (core::present(problem.dx)) store(problem.dx, value, batch, t, d / p.C, d % p.C);
    };
    for (int64_t n = 0; n < p.rows.N; ++n) {
      const ChannelGradient channel{problem, core::token_range(p.rows, n), n, d};
      for (int64_t t = 0; t < channel.range.size(); ++t) {
        store_dx(channel.outer(t), channel.range.batch, channel.range.begin + t);
      }
      for (int64_t column = 0; column < p.L && core::present(problem.dinitial); ++column) {
        store(problem.dinitial, channel.outer(column - p.L), n, d, column);
      }
    }
    for (int64_t t = core::rows_end(p.rows); t < p.rows.T; ++t) store_dx(0.0, 0, t);
    sums_of_weights(problem, d);
  }
}

}  // namespace sluice::ref
