// Computes the gradients of the chunk form with the roundings that kernels declare.
// SPDX-License-Identifier: Apache-2.0
#include "check/backward_yardstick.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "check/products.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kChunk = 64;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void add(const Array& from, double factor, Array* to) {
  for (size_t i = 0; i < to->values.size(); ++i) to->values[i] += factor * from.values[i];
}

/// Row i times factor(i).
template <class Factor>
Array rows_times(Array a, Factor factor) {
  for (int64_t i = 0; i < a.shape[0]; ++i) {
    for (int64_t j = 0; j < a.shape[1]; ++j) a(i, j) *= factor(i);
  }
  return a;
}

double row_dot(const Array& a, const Array& b, int64_t i) {
  double sum = 0.0;
  for (int64_t j = 0; j < a.shape[1]; ++j) sum += a(i, j) * b(i, j);
  return sum;
}

/// The factors of an l2 norm, and the rows divided by their norms; eps = 0: all 1.
std::vector<double> normalise(double eps, Array* rows) {
  std::vector<double> factors;
  for (int64_t t = 0; t < rows->shape[0]; ++t) {
    factors.push_back(eps > 0.0 ? 1.0 / std::sqrt(row_dot(*rows, *rows, t) + eps) : 1.0);
  }
  *rows = rows_times(std::move(*rows), [&](int64_t t) { return factors[static_cast<size_t>(t)]; });
  return factors;
}

/// One chunk of one value head: what the forward pass leaves, and the gradients of its tokens.
/// Letters as in (17) and in docs/kernels/backward.md. What products read is rounded where it is
/// made.
class Chunk {
 public:
  Chunk(const YardstickInputs& y, sluice_dtype io, const Array& d_o, int64_t batch, int64_t begin,
        int64_t C, int64_t h)
      : io_(same_dtype(io, kF32) ? kF64 : io), linear_(y.linear_attention), scale_(y.scale), C_(C) {
    const int64_t key_head = y.key_head(h);
    q_ = rows_of(y.q, batch, begin, C, key_head), k_ = rows_of(y.k, batch, begin, C, key_head);
    v_ = rows_of(y.v, batch, begin, C, h), d_o_ = rows_of(d_o, batch, begin, C, h);
    normalise(y.l2norm_eps, &q_), normalise(y.l2norm_eps, &k_);
    q_ = rounded(q_), k_ = rounded(k_);
    double sum = 0.0;
    for (int64_t t = begin; t < begin + C; ++t) {
      if (!y.g.empty()) sum += std::max(y.g(batch, t, h), kLowestLogGate);
      G_.push_back(sum);
      beta_.push_back(y.beta.empty() ? 1.0 : y.beta(batch, t, h));
    }
  }

  /// From the state that enters to the one that leaves.
  void forward(Array* S) {
    stored_S_ = rounded(*S);
    Array e = v_;
    if (!linear_) {
      solve();
      add(rows_times(multiply(k_, stored_S_), [&](int64_t i) { return std::exp(G(i)); }), -1.0, &e);
      const Array strong = rows_times(e, [&](int64_t i) { return beta(i); });
      add(multiply(B_, rounded(strong), {.lower_a = true}), -1.0, &e);
    }
    const Array writes =
        rounded(rows_times(e, [&](int64_t i) { return beta(i) * gamma(C_ - 1, i); }));
    e_ = rounded(e);
    for (double& x : S->values) x *= std::exp(G(C_ - 1));
    add(multiply(k_, writes, {.transpose_a = true}), 1.0, S);
  }

  /// From the gradient D of the state that leaves to that of the one that enters.
  void backward(Array* D) {
    const Array stored_D = rounded(*D);
    gradient_of_values(stored_D);
    const Array X = rounded(triangle(multiply(d_o_, e_, {.transpose_b = true}), true));
    dq = rows_times(multiply(d_o_, stored_S_, {.transpose_b = true}),
                    [&](int64_t i) { return scale_ * std::exp(G(i)); });
    add(multiply(X, k_, {.lower_a = true}), 1.0, &dq);
    const Array from_end = rows_times(multiply(e_, stored_D, {.transpose_b = true}),
                                      [&](int64_t i) { return beta(i) * gamma(C_ - 1, i); });
    dk = from_end;
    add(multiply(X, q_, {.transpose_a = true, .lower_a = true}), 1.0, &dk);
    dg.assign(static_cast<size_t>(C_), 0.0);
    if (!linear_) through_the_delta_rule();
    gradient_of_gates(stored_D, from_end);
    if (!linear_) add(R_, 1.0, &dk);
    const Array reads =
        rounded(rows_times(d_o_, [&](int64_t i) { return scale_ * std::exp(G(i)); }));
    for (double& x : D->values) x *= std::exp(G(C_ - 1));
    add(multiply(q_, reads, {.transpose_a = true}), 1.0, D);
    if (linear_) return;
    const Array recalls = rounded(rows_times(dv, [&](int64_t i) { return std::exp(G(i)); }));
    add(multiply(k_, recalls, {.transpose_a = true}), -1.0, D);
  }

  Array dq, dk, dv;  ///< by q and k as they are after the norm: parts of a key head's sum
  std::vector<double> dg, dbeta;

 private:
  double G(int64_t i) const { return G_[static_cast<size_t>(i)]; }
  double beta(int64_t i) const { return beta_[static_cast<size_t>(i)]; }
  double gamma(int64_t i, int64_t j) const { return std::exp(G(i) - G(j)); }
  Array rounded(Array a) const { return round_to(io_, std::move(a)); }

  /// scale Gamma * a, lower with its diagonal; with strengths a factor beta a column.
  Array triangle(Array a, bool strengths) const {
    for (int64_t i = 0; i < C_; ++i) {
      for (int64_t j = 0; j < C_; ++j) {
        a(i, j) = j > i ? 0.0 : scale_ * gamma(i, j) * (strengths ? beta(j) : 1.0) * a(i, j);
      }
    }
    return a;
  }

  /// B = L M, L = (I + M diag(beta))^-1, of M = stril(Gamma * k k^T).
  void solve() {
    Array M = multiply(k_, k_, {.transpose_b = true});
    Array L({C_, C_});
    for (int64_t i = 0; i < C_; ++i) {
      for (int64_t j = 0; j < C_; ++j) M(i, j) = j < i ? gamma(i, j) * M(i, j) : 0.0;
      L(i, i) = 1.0;
      for (int64_t j = 0; j < i; ++j) {
        for (int64_t l = 0; l <= j; ++l) L(i, l) -= M(i, j) * beta(j) * L(j, l);
      }
    }
    B_ = rounded(multiply(L, M, {.lower_a = true}));
  }

  /// dv and dbeta, of D', the gradient of the state that leaves.
  void gradient_of_values(const Array& D) {
    const Array P = rounded(triangle(multiply(q_, k_, {.transpose_b = true}), false));
    dv = multiply(P, d_o_, {.transpose_a = true, .lower_a = true});
    add(rows_times(multiply(k_, D), [&](int64_t i) { return gamma(C_ - 1, i); }), 1.0, &dv);
    if (linear_) return;
    const auto strength = [&](int64_t i) { return beta(i); };
    add(multiply(B_, rounded(rows_times(dv, strength)), {.transpose_a = true, .lower_a = true}),
        -1.0, &dv);
    // Y comes to e as dv does: rounded, but for its strength, of which a power of two is apart.
    const Array values = rounded(dv);
    for (int64_t i = 0; i < C_; ++i) dbeta.push_back(row_dot(values, e_, i));
    dv = rows_times(std::move(dv), strength);
  }

  /// What dv adds to dk and dg; R_ is added to dk once gates have read that.
  void through_the_delta_rule() {
    const Array values = rounded(dv);
    Array Z = multiply(values, e_, {.transpose_b = true});
    for (int64_t i = 0; i < C_; ++i) {
      for (int64_t j = 0; j < C_; ++j) Z(i, j) = j < i ? -gamma(i, j) * beta(j) * Z(i, j) : 0.0;
    }
    Z = rounded(Z);
    add(multiply(Z, k_, {.transpose_a = true, .lower_a = true}), 1.0, &dk);
    R_ = multiply(Z, k_, {.lower_a = true});
    add(rows_times(multiply(values, stored_S_, {.transpose_b = true}),
                   [&](int64_t i) { return std::exp(G(i)); }),
        -1.0, &R_);
    for (int64_t i = 0; i < C_; ++i) dg[static_cast<size_t>(i)] += row_dot(k_, R_, i);
  }

  /// dG from rows of what dq and dk are made of, and its sums from the end of the chunk.
  void gradient_of_gates(const Array& D, const Array& from_end) {
    const auto at = [&](int64_t i) -> double& { return dg[static_cast<size_t>(i)]; };
    for (int64_t i = 0; i < C_; ++i) {
      at(i) += row_dot(q_, dq, i) - row_dot(k_, dk, i);
      at(C_ - 1) += row_dot(k_, from_end, i);
    }
    double product = 0.0;
    for (size_t i = 0; i < D.values.size(); ++i) product += stored_S_.values[i] * D.values[i];
    at(C_ - 1) += std::exp(G(C_ - 1)) * product;
    for (int64_t i = C_ - 1; i > 0; --i) at(i - 1) += at(i);
  }

  sluice_dtype io_;
  bool linear_;
  double scale_;
  int64_t C_;
  Array q_, k_, v_, d_o_;
  std::vector<double> G_, beta_;
  Array stored_S_, B_, e_, R_;
};

/// Gradients by q and k after the norm, log gates and write strengths.
class Evaluation {
 public:
  Evaluation(const GdnCase& c, const YardstickInputs& y, const ResultGradients& results)
      : c_(c), y_(y), results_(results) {
    const std::vector<int64_t> heads{c.B, c.T, c.HV};
    out.q = Array(y.q.shape), out.k = Array(y.k.shape), out.v = Array(y.v.shape, kNaN);
    out.gate = Array(heads, kNaN), out.beta = Array(heads, kNaN);
    out.initial = Array({c.sequences(), c.HV, c.K, c.V});
    const std::vector<int64_t> offsets = c.cu_seqlens();
    for (int64_t n = 0; n < c.sequences(); ++n) {
      const auto entry = static_cast<size_t>(n);
      const bool packed = !offsets.empty();
      for (int64_t h = 0; h < c.HV; ++h) {
        run(n, packed ? 0 : n, packed ? offsets[entry] : 0, packed ? offsets[entry + 1] : c.T, h);
      }
    }
  }

  InputGradients out;

 private:
  Array state(const Array& states, int64_t n, int64_t h) const {
    Array S({c_.K, c_.V});
    if (!states.empty())
      std::copy_n(&states.values[states.position(n, h, 0, 0)], S.size(), S.values.data());
    return S;
  }

  void run(int64_t n, int64_t batch, int64_t begin, int64_t end, int64_t h) {
    std::vector<Chunk> chunks;
    Array S = state(y_.initial, n, h), D = state(results_.d_final, n, h);
    for (int64_t t = begin; t < end; t += kChunk) {
      chunks.emplace_back(y_, c_.io, results_.d_o, batch, t, std::min(kChunk, end - t), h)
          .forward(&S);
    }
    for (size_t i = chunks.size(); i-- > 0;) {
      chunks[i].backward(&D);
      store(chunks[i], batch, begin + static_cast<int64_t>(i) * kChunk, h);
    }
    std::copy(D.values.begin(), D.values.end(), &out.initial(n, h, 0, 0));
  }

  void store(const Chunk& chunk, int64_t batch, int64_t begin, int64_t h) {
    const int64_t key_head = y_.key_head(h);
    for (int64_t i = 0; i < chunk.dv.shape[0]; ++i) {
      const int64_t t = begin + i;
      for (int64_t j = 0; j < c_.K; ++j) {
        out.q(batch, t, key_head, j) += chunk.dq(i, j);
        out.k(batch, t, key_head, j) += chunk.dk(i, j);
      }
      for (int64_t j = 0; j < c_.V; ++j) out.v(batch, t, h, j) = chunk.dv(i, j);
      out.gate(batch, t, h) = chunk.dg[static_cast<size_t>(i)];
      if (!chunk.dbeta.empty()) out.beta(batch, t, h) = chunk.dbeta[static_cast<size_t>(i)];
    }
  }

  const GdnCase& c_;
  const YardstickInputs& y_;
  const ResultGradients& results_;
};

/// By raw rows from by normalised ones.
void through_norm(double eps, const Array& raw, Array* gradient) {
  const int64_t width = raw.shape[3];
  Array rows({raw.size() / width, width}), d = rows;
  rows.values = raw.values, d.values = gradient->values;
  const std::vector<double> factors = normalise(eps, &rows);
  for (int64_t i = 0; i < rows.shape[0] && eps > 0.0; ++i) {
    const double along = row_dot(rows, d, i);
    for (int64_t j = 0; j < width; ++j) {
      d(i, j) = factors[static_cast<size_t>(i)] * (d(i, j) - rows(i, j) * along);
    }
  }
  gradient->values = std::move(d.values);
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// By the gate argument and its parameters from by log gates.
void through_gates(const GdnCase& c, const GdnInputs& inputs, const Array& g, InputGradients* out) {
  const bool bounded = c.options.gate_space == SLUICE_GATE_RAW_BOUNDED;
  const auto of_head = [](const Array& parameters, size_t h) {
    return parameters.empty() ? 0.0 : parameters.values[h];
  };
  if (!inputs.A_log.empty()) out->A_log = Array({c.HV});
  if (!inputs.dt_bias.empty()) out->dt_bias = Array({c.HV});
  for (size_t i = 0; i < g.values.size(); ++i) {
    const size_t h = i % static_cast<size_t>(c.HV);
    double& gradient = out->gate.values[i];
    if (std::isnan(gradient)) continue;  // past the last sequence
    if (g.values[i] < kLowestLogGate) gradient = 0.0;
    if (gradient != 0.0 && c.options.gate_space == SLUICE_GATE_LINEAR)
      gradient /= inputs.gate.values[i];
    if (c.options.gate_space != SLUICE_GATE_RAW && !bounded) continue;
    const double a = inputs.gate.values[i] + of_head(inputs.dt_bias, h);
    const double rate = std::exp(of_head(inputs.A_log, h));
    // By the logarithm of the rate, then by a.
    const double by_rate = gradient * g.values[i] * (bounded ? sigmoid(-rate * a) * rate * a : 1.0);
    gradient *=
        bounded ? g.values[i] * sigmoid(-rate * a) * rate : -rate * (a > 20.0 ? 1.0 : sigmoid(a));
    if (!out->A_log.empty()) out->A_log.values[h] += by_rate;
    if (!out->dt_bias.empty()) out->dt_bias.values[h] += gradient;
  }
  if (g.empty()) out->gate = {};
}

void through_betas(const GdnCase& c, const GdnInputs& inputs, InputGradients* out) {
  const double factor = c.options.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  for (size_t i = 0; i < inputs.beta.values.size(); ++i) {
    const double s = sigmoid(inputs.beta.values[i]);
    out->beta.values[i] *=
        factor * (c.options.beta_space == SLUICE_BETA_LOGIT ? s * (1.0 - s) : 1.0);
  }
  if (inputs.beta.empty()) out->beta = {};
}

}  // namespace

InputGradients backward_yardstick_of(const GdnCase& c, const GdnInputs& inputs,
                                     const ResultGradients& results) {
  const YardstickInputs y = yardstick_inputs_of(c, inputs);
  InputGradients out = Evaluation(c, y, results).out;
  through_norm(y.l2norm_eps, inputs.q, &out.q), through_norm(y.l2norm_eps, inputs.k, &out.k);
  through_gates(c, inputs, y.g, &out);
  through_betas(c, inputs, &out);
  for (Array* stored : {&out.q, &out.k, &out.v}) *stored = round_to(c.io, std::move(*stored));
  return out;
}

}  // namespace sluice::check
