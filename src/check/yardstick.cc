// Computes the chunk form in double, with the declared roundings of 16-bit kernels.
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
