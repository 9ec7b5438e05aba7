// Computes the chunk form with key-wise gates in double, with the declared roundings.
// SPDX-License-Identifier: Apache-2.0
#include "check/yardstick.hpp"

#include <algorithm>
#include <cmath>

#include "check/products.hpp"

namespace sluice::check {

void HeadChunks::load_rows(int64_t batch, int64_t begin, int64_t C, int64_t h) {
  const int64_t H = inputs_.q.shape[2], K = inputs_.q.shape[3];
  const int64_t HV = inputs_.v.shape[2], V = inputs_.v.shape[3];
  const int64_t key_head = inputs_.cyclic_heads ? h % H : h / (HV / H);
  q_ = Array({C, K}), k_ = Array({C, K}), v_ = Array({C, V}), beta_ = Array({C}, 1.0);
  for (int64_t t = 0; t < C; ++t) {
    const int64_t row = begin + t;
    for (int64_t i = 0; i < K; ++i) {
      q_(t, i) = inputs_.q(batch, row, key_head, i);
      k_(t, i) = inputs_.k(batch, row, key_head, i);
    }
    for (int64_t j = 0; j < V; ++j) v_(t, j) = inputs_.v(batch, row, h, j);
    if (!inputs_.beta.empty()) beta_(t) = inputs_.beta(batch, row, h);
  }
}

void KeyEvaluation::load_chunk(int64_t batch, int64_t begin, int64_t C, int64_t h) {
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
Array KeyEvaluation::scaled(const Array& rows, bool to_end, double factor) const {
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
Array KeyEvaluation::products(const Array& rows) const {
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
Array KeyEvaluation::corrected_values(const Array& stored_S) const {
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

void KeyEvaluation::advance(int64_t batch, int64_t begin, int64_t C, int64_t h, Array* o) {
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

}  // namespace sluice::check
