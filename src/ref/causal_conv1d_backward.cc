// Computes gradients of the short causal convolution in double (docs/math.md section 10).
// SPDX-License-Identifier: Apache-2.0
#include "ref/access.hpp"
#include "ref/gates.hpp"
#include "ref/operators.hpp"

namespace sluice::ref {
namespace {

using core::CausalConvBackwardProblem;
using core::CausalConvProblem;
using core::TokenRange;

/// One channel of one sequence. Token t < 0 is column L + t of the initial state.
struct Channel {
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
      const Channel channel{problem, core::token_range(p.rows, n), n, d};
      for (int64_t t = 0; t < channel.range.size(); ++t) {
        sum += channel.inner(t) * (bias ? 1.0 : channel.input(t - p.W + 1 + w));
      }
    }
    bias ? store(problem.dbias, sum, d) : store(problem.dweight, sum, d, w);
  }
}

}  // namespace

void causal_conv1d_backward(const CausalConvBackwardProblem& problem) noexcept {
  const CausalConvProblem& p = problem.forward;
  for (int64_t d = 0; d < p.G * p.C; ++d) {
    const auto store_dx = [&](double value, int64_t batch, int64_t t) {
      if (core::present(problem.dx)) store(problem.dx, value, batch, t, d / p.C, d % p.C);
    };
    for (int64_t n = 0; n < p.rows.N; ++n) {
      const Channel channel{problem, core::token_range(p.rows, n), n, d};
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
