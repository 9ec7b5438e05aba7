// Computes the chunk form with key-wise gates: G_i is a K-vector, and each channel of k has its own
// decays.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ref/forms.hpp"

namespace sluice::ref {
namespace {

/// sum over l of x_l y_l exp(G_l - H_l).
double decayed_dot(Vector x, Vector y, Vector G, Vector H) noexcept {
  double sum = 0.0;
  for (int64_t l = 0; l < x.size; ++l) sum += x[l] * std::exp(G[l] - H[l]) * y[l];
  return sum;
}

}  // namespace

void key_cumsum(Matrix g, Matrix G) noexcept {
  for (int64_t l = 0; l < g.cols; ++l) {
    double sum = 0.0;
    for (int64_t i = 0; i < g.rows; ++i) G(i, l) = sum += g(i, l);
  }
}

void key_scaled_dot_kkt(Vector beta, Matrix G, Matrix k, Matrix A) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) {
    for (int64_t j = 0; j < k.rows; ++j) {
      A(i, j) = j < i ? beta[i] * decayed_dot(k.row(i), k.row(j), G.row(i), G.row(j)) : 0.0;
    }
  }
}

void wy_keys(Matrix Tmat, Matrix G, Matrix k, Matrix W) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) {
    for (int64_t l = 0; l < k.cols; ++l) {
      W(i, l) = 0.0;
      for (int64_t j = 0; j <= i; ++j) W(i, l) += Tmat(i, j) * std::exp(G(j, l)) * k(j, l);
    }
  }
}

void chunk_o(Matrix q, Matrix k, Matrix v_new, Matrix G, Matrix S, double scale,
             Matrix o) noexcept {
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t j = 0; j < o.cols; ++j) o(i, j) = 0.0;
    for (int64_t l = 0; l < S.rows; ++l) {
      add_scaled(o.row(i), scale * std::exp(G(i, l)) * q(i, l), S.row(l));
    }
    for (int64_t j = 0; j <= i; ++j) {
      const double score = decayed_dot(q.row(i), k.row(j), G.row(i), G.row(j));
      add_scaled(o.row(i), scale * score, v_new.row(j));
    }
  }
}

void chunk_h(Matrix k, Matrix v_new, Matrix G, Matrix S) noexcept {
  const Vector last = G.row(G.rows - 1);
  for (int64_t l = 0; l < S.rows; ++l) {
    for (int64_t j = 0; j < S.cols; ++j) S(l, j) *= std::exp(last[l]);
    for (int64_t i = 0; i < k.rows; ++i) {
      add_scaled(S.row(l), k(i, l) * std::exp(last[l] - G(i, l)), v_new.row(i));
    }
  }
}

}  // namespace sluice::ref
