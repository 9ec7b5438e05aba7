// Computes the chunk form in double, with scalar and with key-wise gates and the declared roundings of
// 16-bit kernels.
// SPDX-License-Identifier: Apache-2.0
#include "check/yardstick.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "check/products.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kChunk = 64;

/// One value head of one sequence, one chunk after another: what both kinds of gates share.
class HeadChunks {
 public:
  HeadChunks(const YardstickInputs& inputs, sluice_dtype io, Array S)
      : inputs_(inputs), io_(same_dtype(io, kF32) ? kF64 : io), stored_as_(io), S_(std::move(S)) {}
  const Array& state() const noexcept { return S_; }

 protected:
  /// q, k, v and beta of tokens begin .. begin + C - 1 of `batch`.
  void load_rows(int64_t batch, int64_t begin, int64_t C, int64_t h) {
    const int64_t key_head = inputs_.key_head(h);
    q_ = rows_of(inputs_.q, batch, begin, C, key_head);
    k_ = rows_of(inputs_.k, batch, begin, C, key_head);
    v_ = rows_of(inputs_.v, batch, begin, C, h), beta_ = Array({C}, 1.0);
    for (int64_t t = 0; t < C && !inputs_.beta.empty(); ++t) {
      beta_(t) = inputs_.beta(batch, begin + t, h);
    }
  }
  /// Tmat of A_ij = a(i, j), strictly lower.
  template <class Entry>
  Array solve(const Entry& a) const {
    const int64_t C = k_.shape[0];
    Array tmat({C, C});
    for (int64_t i = 0; i < C; ++i) {
      tmat(i, i) = beta_(i);
      for (int64_t j = 0; j < i; ++j) {
        const double entry = a(i, j);
        for (int64_t l = 0; l <= j; ++l) tmat(i, l) -= entry * tmat(j, l);
      }
    }
    return tmat;
  }

  const YardstickInputs& inputs_;
  sluice_dtype io_;         // of operands
  sluice_dtype stored_as_;  // of o
  Array S_;                 // [K,V]
  Array q_, k_, v_, beta_;  // [C,K], [C,K], [C,V], [C]
};

/// HeadChunks with scalar gates.
class HeadEvaluation : public HeadChunks {
 public:
  using HeadChunks::HeadChunks;

  /// Tokens begin .. begin + C - 1 of `batch`; writes their rows of o.
  void advance(int64_t batch, int64_t begin, int64_t C, int64_t h, Array* o) {
    load_chunk(batch, begin, C, h);
    const Array stored_S = round_to(io_, S_);
    const Array new_values = inputs_.linear_attention ? v_ : corrected_values(stored_S);
    write_output(stored_S, round_to(io_, new_values), batch, begin, h, o);
    update_state(new_values);
  }

 private:
  void load_chunk(int64_t batch, int64_t begin, int64_t C, int64_t h) {
    load_rows(batch, begin, C, h);
    G_ = Array({C}), q_factor_ = Array({C}, 1.0), k_factor_ = Array({C}, 1.0);
    double sum = 0.0;
    for (int64_t t = 0; t < C; ++t) {
      double q_sum = 0.0, k_sum = 0.0;
      for (int64_t i = 0; i < q_.shape[1]; ++i) {
        q_sum += q_(t, i) * q_(t, i), k_sum += k_(t, i) * k_(t, i);
      }
      if (inputs_.l2norm_eps > 0.0) {
        q_factor_(t) = 1.0 / std::sqrt(q_sum + inputs_.l2norm_eps);
        k_factor_(t) = 1.0 / std::sqrt(k_sum + inputs_.l2norm_eps);
      }
      if (!inputs_.g.empty()) sum += std::max(inputs_.g(batch, begin + t, h), kLowestLogGate);
      G_(t) = sum;
    }
  }

  double gamma(int64_t i, int64_t j) const { return std::exp(G_(i) - G_(j)); }

  /// Tmat R with R = v - e^G k S; Tmat and R are rounded operands.
  Array corrected_values(const Array& stored_S) const {
    const int64_t C = G_.size();
    const Array kk = multiply(k_, k_, {.transpose_b = true});
    Array tmat = solve([&](int64_t i, int64_t j) {
      return beta_(i) * gamma(i, j) * k_factor_(i) * k_factor_(j) * kk(i, j);
    });
    Array residual = multiply(k_, stored_S, {});
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t j = 0; j < v_.shape[1]; ++j) {
        residual(i, j) = v_(i, j) - std::exp(G_(i)) * k_factor_(i) * residual(i, j);
      }
    }
    return multiply(round_to(io_, std::move(tmat)), round_to(io_, std::move(residual)),
                    {.lower_a = true});
  }

  /// o = scale e^G q S + P v_new, P = scale Gamma tril(q k^T) a rounded operand.
  void write_output(const Array& stored_S, const Array& stored_values, int64_t batch, int64_t begin,
                    int64_t h, Array* o) const {
    const Array from_state = multiply(q_, stored_S, {});
    Array P = multiply(q_, k_, {.transpose_b = true});
    for (int64_t i = 0; i < G_.size(); ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        P(i, j) *= inputs_.scale * gamma(i, j) * q_factor_(i) * k_factor_(j);
      }
    }
    const Array from_chunk =
        multiply(round_to(io_, std::move(P)), stored_values, {.lower_a = true});
    for (int64_t i = 0; i < G_.size(); ++i) {
      for (int64_t j = 0; j < v_.shape[1]; ++j) {
        const double value =
            inputs_.scale * std::exp(G_(i)) * q_factor_(i) * from_state(i, j) + from_chunk(i, j);
        (*o)(batch, begin + i, h, j) = round_to(stored_as_, value);
      }
    }
  }

  /// S <- e^{G_C} S + k^T (e^{G_C - G} v_new), the bracket a rounded operand.
  void update_state(Array new_values) {
    const int64_t last = G_.size() - 1;
    for (int64_t i = 0; i <= last; ++i) {
      for (int64_t j = 0; j < v_.shape[1]; ++j) new_values(i, j) *= gamma(last, i) * k_factor_(i);
    }
    new_values = round_to(io_, std::move(new_values));
    const double decay = std::exp(G_(last));
    for (double& value : S_.values) value *= decay;
    for (int64_t i = 0; i <= last; ++i) {
      const double* const row = &new_values(i, 0);
      for (int64_t l = 0; l < S_.shape[0]; ++l) {
        double* const target = &S_(l, 0);
        for (int64_t j = 0; j < S_.shape[1]; ++j) target[j] += k_(i, l) * row[j];
      }
    }
  }

  Array G_, q_factor_, k_factor_;  // [C]
};

/// HeadChunks with key-wise gates.
/// NUM: the scaled tiles of queries and keys are rounded operands, and nothing else that scalar gates
/// have not.
class KeyEvaluation : public HeadChunks {
 public:
  using HeadChunks::HeadChunks;

  /// Tokens begin .. begin + C - 1 of `batch`; writes their rows of o.
  void advance(int64_t batch, int64_t begin, int64_t C, int64_t h, Array* o) {
    load_chunk(batch, begin, C, h);
    const Array stored_S = round_to(io_, S_);
    const Array values = round_to(io_, inputs_.linear_attention ? v_ : corrected_values(stored_S));
    Array P = products(q_);
    for (double& value : P.values) value *= inputs_.scale;
    const Array from_state = multiply(scaled(q_, false, inputs_.scale), stored_S, {}),
                from_chunk = multiply(round_to(io_, std::move(P)), values, {.lower_a = true});
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t j = 0; j < v_.shape[1]; ++j) {
        (*o)(batch, begin + i, h, j) = round_to(stored_as_, from_state(i, j) + from_chunk(i, j));
      }
    }
    const Array added = multiply(scaled(k_, true, 1.0), values, {.transpose_a = true});
    for (int64_t l = 0; l < S_.shape[0]; ++l) {
      const double decay = std::exp(G_(C - 1, l));
      for (int64_t j = 0; j < S_.shape[1]; ++j) S_(l, j) = decay * S_(l, j) + added(l, j);
    }
  }

 private:
  void load_chunk(int64_t batch, int64_t begin, int64_t C, int64_t h) {
    load_rows(batch, begin, C, h);
    const int64_t K = q_.shape[1];
    G_ = Array({C, K});
    for (int64_t t = 0; t < C; ++t) {
      double q_sum = inputs_.l2norm_eps, k_sum = q_sum;
      for (int64_t i = 0; i < K; ++i) {
        q_sum += q_(t, i) * q_(t, i), k_sum += k_(t, i) * k_(t, i);
        const double g = std::max(inputs_.g(batch, begin + t, h, i), kLowestLogGate);
        G_(t, i) = (t == 0 ? 0.0 : G_(t - 1, i)) + g;
      }
      for (int64_t i = 0; i < K && inputs_.l2norm_eps > 0.0; ++i) {
        q_(t, i) /= std::sqrt(q_sum), k_(t, i) /= std::sqrt(k_sum);
      }
    }
  }

  /// Rows times `factor` and their decay since the chunk's start, or up to its end; rounded.
  Array scaled(const Array& rows, bool to_end, double factor) const {
    Array out = rows;
    const int64_t C = rows.shape[0], K = rows.shape[1];
    for (int64_t t = 0; t < C; ++t) {
      for (int64_t i = 0; i < K; ++i) {
        out(t, i) *= factor * std::exp(to_end ? G_(C - 1, i) - G_(t, i) : G_(t, i));
      }
    }
    return round_to(io_, std::move(out));
  }

  /// sum_l rows_il k_jl e^{G_il - G_jl}, j <= i.
  Array products(const Array& rows) const {
    const int64_t C = rows.shape[0], K = rows.shape[1];
    Array out({C, C});
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t l = 0; l < K; ++l) {
          out(i, j) += rows(i, l) * k_(j, l) * std::exp(G_(i, l) - G_(j, l));
        }
      }
    }
    return out;
  }

  /// Tmat R with R = v - k~ S; Tmat and R are rounded operands.
  Array corrected_values(const Array& stored_S) const {
    const int64_t C = G_.shape[0];
    const Array M = products(k_);
    Array tmat = solve([&](int64_t i, int64_t j) { return beta_(i) * M(i, j); });
    Array residual = multiply(scaled(k_, false, 1.0), stored_S, {});
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t j = 0; j < v_.shape[1]; ++j) residual(i, j) = v_(i, j) - residual(i, j);
    }
    return multiply(round_to(io_, std::move(tmat)), round_to(io_, std::move(residual)),
                    {.lower_a = true});
  }

  Array G_;  // [C,K]
};

}  // namespace

YardstickOutputs evaluate_yardstick(const YardstickInputs& inputs, sluice_dtype io,
                                    sluice_dtype state) {
  const int64_t K = inputs.q.shape[3], HV = inputs.v.shape[2], V = inputs.v.shape[3];
  const bool packed = !inputs.cu_seqlens.empty();
  const int64_t N = packed ? static_cast<int64_t>(inputs.cu_seqlens.size()) - 1 : inputs.v.shape[0];
  YardstickOutputs outputs{Array(inputs.v.shape, std::numeric_limits<double>::quiet_NaN()),
                           Array({N, HV, K, V})};
  for (int64_t n = 0; n < N; ++n) {
    const auto entry = static_cast<size_t>(n);
    const int64_t begin = packed ? inputs.cu_seqlens[entry] : 0;
    const int64_t end = packed ? inputs.cu_seqlens[entry + 1] : inputs.v.shape[1];
    for (int64_t h = 0; h < HV; ++h) {
      Array S({K, V});
      const size_t first = outputs.final_state.position(n, h, 0, 0);
      if (!inputs.initial.empty()) {
        std::copy_n(inputs.initial.values.begin() + static_cast<std::ptrdiff_t>(first), S.size(),
                    S.values.begin());
      }
      const auto run = [&](auto evaluation) {
        for (int64_t t = begin; t < end; t += kChunk) {
          evaluation.advance(packed ? 0 : n, t, std::min(kChunk, end - t), h, &outputs.o);
        }
        return round_to(state, evaluation.state());
      };
      const bool key_wise = inputs.g.shape.size() == 4;
      const Array stored = key_wise ? run(KeyEvaluation(inputs, io, std::move(S)))
                                    : run(HeadEvaluation(inputs, io, std::move(S)));
      std::copy(stored.values.begin(), stored.values.end(),
                outputs.final_state.values.begin() + static_cast<std::ptrdiff_t>(first));
    }
  }
  return outputs;
}

}  // namespace sluice::check
