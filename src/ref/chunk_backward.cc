// Computes gradients of the recurrence, token by token, in float64.
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <algorithm>
#include <cmath>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {
namespace {

using core::ChunkBackwardProblem;
using core::DeltaRuleProblem;
using core::TokenRange;

/// States are kept every so many tokens and computed again in between: 2 sqrt(T) of them, not T.
int64_t segment_tokens(int64_t T) noexcept {
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(T)))), 1);
}

/// y += factor A x.
void add_product(Matrix A, Vector x, double factor, Vector y) noexcept {
  for (int64_t i = 0; i < A.rows; ++i) y[i] += factor * dot(A.row(i), x);
}

/// A += factor x y^T.
void add_outer(double factor, Vector x, Vector y, Matrix A) noexcept {
  for (int64_t i = 0; i < A.rows; ++i) {
    for (int64_t j = 0; j < A.cols; ++j) A(i, j) += factor * x[i] * y[j];
  }
}

void copy(Matrix from, Matrix to) noexcept {
  std::copy_n(from.data, from.rows * from.cols, to.data);
}

/// d x from d y, y = x / sqrt(sum(x^2) + eps) given: in place.
void through_l2_norm(Vector y, double factor, Vector gradient) noexcept {
  const double along = dot(y, gradient);
  for (int64_t i = 0; i < y.size; ++i) gradient[i] = factor * (gradient[i] - y[i] * along);
}

/// One token after gates and norms, and the gradients that one value head adds.
struct Token {
  Vector q, k, v, d_o, dv;
  double q_factor = 1, k_factor = 1;  ///< of the l2 norm
  double beta = 1;
  Vector g{};  ///< [1], with key-wise gates [K]
};

struct Scratch {
  Scratch(const ChunkBackwardProblem& problem, Arena& arena) noexcept
      : segment(segment_tokens(problem.forward.rows.T)) {
    const DeltaRuleProblem& p = problem.forward;
    const int64_t T = p.rows.T;
    S = arena.matrix(p.K, p.V), P = arena.matrix(p.K, p.V), D = arena.matrix(p.K, p.V);
    states = arena.doubles(segment * p.K * p.V);
    starts = arena.doubles((core::chunk_count(T, segment) + 1) * p.K * p.V);
    dq = arena.matrix(T, p.K), dk = arena.matrix(T, p.K);
    token = {arena.vector(p.K), arena.vector(p.K), arena.vector(p.V), arena.vector(p.V),
             arena.vector(p.V)};
    token.g = arena.vector(gate_channels(p));
    error = arena.vector(p.V), x = arena.vector(p.V);
    dA_log = arena.vector(p.HV), ddt_bias = arena.matrix(p.HV, gate_channels(p));
  }

  int64_t segment;
  Matrix S, P, D;  ///< S_t (or S_{t-1}), alpha_t S_{t-1}, gradient of S_t
  double* states;  ///< of one segment: S before each token
  double* starts;  ///< S before each segment
  Matrix dq, dk;   ///< [T, K]: of the key head, summed over its value heads
  Token token;
  Vector error, x;  ///< v - (alpha S)^T k; D^T k
  Vector dA_log;
  Matrix ddt_bias;  ///< [HV, 1], with key-wise gates [HV, K]
};

/// All tokens of one sequence and one value head.
class HeadGradient {
 public:
  HeadGradient(const ChunkBackwardProblem& problem, Scratch& scratch, int64_t n, int64_t h) noexcept
      : problem_(problem),
        p_(problem.forward),
        s_(scratch),
        range_(core::token_range(problem.forward.rows, n)),
        n_(n),
        h_(h) {}

  void run() noexcept {
    const int64_t T = range_.size(), segments = core::chunk_count(T, s_.segment);
    load_state(p_.state.initial, p_.state.layout, n_, h_, s_.S);
    for (int64_t i = 0; i < segments; ++i) {
      copy(s_.S, at(s_.starts, i));
      forward(i * s_.segment, std::min(T, (i + 1) * s_.segment));
    }
    load_state(problem_.d_final, p_.state.layout, n_, h_, s_.D);
    for (int64_t i = segments - 1; i >= 0; --i) {
      const int64_t begin = i * s_.segment, end = std::min(T, begin + s_.segment);
      copy(at(s_.starts, i), s_.S);
      forward(begin, end);
      for (int64_t t = end - 1; t >= begin; --t) backward(t, at(s_.states, t - begin));
    }
    if (core::present(problem_.dinitial)) {
      store_state(problem_.dinitial, p_.state.layout, n_, h_, s_.D);
    }
  }

 private:
  Matrix at(double* states, int64_t i) const noexcept {
    return {states + i * p_.K * p_.V, p_.K, p_.V};
  }

  void load_row(const Tensor& view, int64_t t, int64_t head, Vector to) const noexcept {
    for (int64_t i = 0; i < to.size; ++i) {
      to[i] = load(view, range_.batch, range_.begin + t, head, i);
    }
  }

  static double normalise(double eps, Vector x) noexcept {
    const double factor = 1.0 / std::sqrt(dot(x, x) + eps);
    for (int64_t i = 0; i < x.size; ++i) x[i] *= factor;
    return factor;
  }

  void load_token(int64_t t) const noexcept {
    Token& token = s_.token;
    load_row(p_.q, t, p_.key_head(h_), token.q);
    load_row(p_.k, t, p_.key_head(h_), token.k);
    load_row(p_.v, t, h_, token.v);
    load_row(problem_.d_o, t, h_, token.d_o);
    if (p_.qk_norm == SLUICE_QK_NORM_L2) {
      token.q_factor = normalise(p_.l2norm_eps, token.q);
      token.k_factor = normalise(p_.l2norm_eps, token.k);
    }
    for (int64_t i = 0; i < token.g.size; ++i) {
      token.g[i] = log_gate(p_, range_.batch, range_.begin + t, h_, i);
    }
    token.beta = write_strength(p_, range_.batch, range_.begin + t, h_);
  }

  bool delta_rule() const noexcept { return p_.rule == SLUICE_RULE_GATED_DELTA; }

  /// P = alpha S, error = v - P^T k (LINEAR_ATTENTION: v) of the token loaded.
  void look(Matrix S) const noexcept {
    copy(S, s_.P);
    decay(s_.P, s_.token.g);
    std::copy_n(s_.token.v.data, s_.error.size, s_.error.data);
    if (!delta_rule()) return;
    read(s_.P, s_.token.k, s_.x);
    for (int64_t j = 0; j < s_.error.size; ++j) s_.error[j] -= s_.x[j];
  }

  double strength() const noexcept { return delta_rule() ? s_.token.beta : 1.0; }

  /// S over tokens begin .. end - 1, the state before each of them kept.
  void forward(int64_t begin, int64_t end) const noexcept {
    for (int64_t t = begin; t < end; ++t) {
      copy(s_.S, at(s_.states, t - begin));
      load_token(t);
      look(s_.S);
      copy(s_.P, s_.S);
      add_outer(strength(), s_.token.k, s_.error, s_.S);
    }
  }

  /// From the gradient D of S_t to that of `before` = S_{t-1}; the lines of
  /// sluice_chunk_backward_args.
  void backward(int64_t t, Matrix before) const noexcept {
    load_token(t);
    const Token& token = s_.token;
    const double beta = strength();
    look(before);
    copy(s_.P, s_.S);
    add_outer(beta, token.k, s_.error, s_.S);
    add_outer(p_.scale, token.q, token.d_o, s_.D);
    add_product(s_.S, token.d_o, p_.scale, s_.dq.row(t));
    read(s_.D, token.k, s_.x);
    add_product(s_.D, s_.error, beta, s_.dk.row(t));
    for (int64_t j = 0; j < token.dv.size; ++j) token.dv[j] = beta * s_.x[j];
    if (delta_rule()) {
      add_product(s_.P, s_.x, -beta, s_.dk.row(t));
      add_outer(-beta, token.k, s_.x, s_.D);
    }
    store_gradients(t, dot(s_.x, s_.error));
    decay(s_.D, s_.token.g);
  }

  /// dv, dbeta and dgate; D is P_t's gradient, P is alpha_t S_{t-1}.
  void store_gradients(int64_t t, double dbeta) const noexcept {
    const int64_t batch = range_.batch, row = range_.begin + t;
    if (core::present(problem_.dv)) {
      for (int64_t j = 0; j < p_.V; ++j) store(problem_.dv, s_.token.dv[j], batch, row, h_, j);
    }
    if (core::present(problem_.dbeta)) {
      const double by = write_strength_slope(p_, batch, row, h_);
      store(problem_.dbeta, dbeta * by, batch, row, h_ / p_.r, h_ % p_.r);
    }
    if (core::present(p_.gate) || core::present(p_.key_gate)) store_gate_gradients(batch, row);
  }

  /// A scalar gate is that of all K rows of the state, a key-wise one of one.
  void store_gate_gradients(int64_t batch, int64_t row) const noexcept {
    const int64_t channels = gate_channels(p_), rows = p_.K / channels;
    for (int64_t i = 0; i < channels; ++i) {
      double dg = 0.0;
      for (int64_t l = i * rows; l < (i + 1) * rows; ++l) dg += dot(s_.D.row(l), s_.P.row(l));
      const GateSlopes slopes = log_gate_slopes(p_, batch, row, h_, i);
      if (core::present(problem_.dgate)) {
        const bool key_wise = core::present(p_.key_gate);
        store(problem_.dgate, dg * slopes.gate, batch, row, key_wise ? h_ : h_ / p_.r,
              key_wise ? i : h_ % p_.r);
      }
      s_.dA_log[h_] += dg * slopes.A_log;
      s_.ddt_bias(h_, i) += dg * slopes.gate;
    }
  }

  const ChunkBackwardProblem& problem_;
  const DeltaRuleProblem& p_;
  Scratch& s_;
  TokenRange range_;
  int64_t n_, h_;
};

/// dq and dk of a key head: through the l2 norm, where there is one, and to memory.
void store_keys(const ChunkBackwardProblem& problem, const TokenRange& range, int64_t key_head,
                const Scratch& s) noexcept {
  const DeltaRuleProblem& p = problem.forward;
  const struct {
    const Tensor &from, &to;
    Matrix gradient;
  } parts[] = {{p.q, problem.dq, s.dq}, {p.k, problem.dk, s.dk}};
  for (const auto& part : parts) {
    for (int64_t t = 0; t < range.size() && core::present(part.to); ++t) {
      const Vector x = s.token.k, gradient = part.gradient.row(t);
      for (int64_t i = 0; i < p.K; ++i) {
        x[i] = load(part.from, range.batch, range.begin + t, key_head, i);
      }
      if (p.qk_norm == SLUICE_QK_NORM_L2) {
        const double factor = 1.0 / std::sqrt(dot(x, x) + p.l2norm_eps);
        for (int64_t i = 0; i < p.K; ++i) x[i] *= factor;
        through_l2_norm(x, factor, gradient);
      }
      for (int64_t i = 0; i < p.K; ++i) {
        store(part.to, gradient[i], range.batch, range.begin + t, key_head, i);
      }
    }
  }
}

void store_bias_gradient(const ChunkBackwardProblem& problem, const Scratch& s,
                         int64_t h) noexcept {
  if (!core::present(problem.forward.key_gate)) {
    return store(problem.ddt_bias, s.ddt_bias(h, 0), h);
  }
  for (int64_t i = 0; i < s.ddt_bias.cols; ++i) store(problem.ddt_bias, s.ddt_bias(h, i), h, i);
}

}  // namespace

size_t chunk_backward_workspace(const ChunkBackwardProblem& problem) noexcept {
  Arena counter(nullptr);
  Scratch scratch(problem, counter);
  return counter.bytes();
}

void chunk_backward(const ChunkBackwardProblem& problem, Arena arena) noexcept {
  Scratch scratch(problem, arena);
  const DeltaRuleProblem& p = problem.forward;
  std::fill_n(scratch.dA_log.data, p.HV, 0.0);
  std::fill_n(scratch.ddt_bias.data, scratch.ddt_bias.rows * scratch.ddt_bias.cols, 0.0);
  for (int64_t n = 0; n < p.rows.N; ++n) {
    const TokenRange range = core::token_range(p.rows, n);
    for (int64_t key_head = 0; key_head < p.H; ++key_head) {
      std::fill_n(scratch.dq.data, range.size() * p.K, 0.0);
      std::fill_n(scratch.dk.data, range.size() * p.K, 0.0);
      for (int64_t h = 0; h < p.HV; ++h) {
        if (p.key_head(h) == key_head) HeadGradient(problem, scratch, n, h).run();
      }
      store_keys(problem, range, key_head, scratch);
    }
  }
  for (int64_t h = 0; h < p.HV; ++h) {
    if (core::present(problem.dA_log)) store(problem.dA_log, scratch.dA_log[h], h);
    if (core::present(problem.ddt_bias)) store_bias_gradient(problem, scratch, h);
  }
}

}  // namespace sluice::ref
