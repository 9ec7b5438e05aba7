// Computes both forms of the recurrence in double: the equations of the chunk form, and token by token
// decay, read, error, write.
// SPDX-License-Identifier: Apache-2.0
#include "ref/forms.hpp"

#include <cmath>

namespace sluice::ref {
namespace {

void set_zero(Vector x) noexcept {
  for (int64_t i = 0; i < x.size; ++i) x[i] = 0.0;
}

/// The channel of gates that is channel l of k.
int64_t channel(Matrix G, int64_t l) noexcept { return G.cols == 1 ? 0 : l; }

/// Top left corner of a [kBlock, kBlock] buffer as a dense [C, C] matrix.
Matrix square(Matrix buffer, int64_t C) noexcept { return {buffer.data, C, C}; }

}  // namespace

void chunk_cumsum(Matrix g, Matrix G) noexcept {
  for (int64_t l = 0; l < g.cols; ++l) {
    double sum = 0.0;
    for (int64_t i = 0; i < g.rows; ++i) G(i, l) = sum += g(i, l);
  }
}

double decayed_dot(Vector x, Vector y, Vector G, Vector H) noexcept {
  if (G.size == 1) return std::exp(G[0] - H[0]) * dot(x, y);
  double sum = 0.0;
  for (int64_t l = 0; l < x.size; ++l) sum += x[l] * std::exp(G[l] - H[l]) * y[l];
  return sum;
}

void scaled_dot_kkt(Vector beta, Matrix G, Matrix k, Matrix A) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) {
    for (int64_t j = 0; j < k.rows; ++j) {
      A(i, j) = j < i ? beta[i] * decayed_dot(k.row(i), k.row(j), G.row(i), G.row(j)) : 0.0;
    }
  }
}

void solve_tril(Matrix A, Vector beta, Matrix Tmat) noexcept {
  // (I + A) Tmat = diag(beta): row i = beta_i e_i - sum_{j < i} A_ij row j.
  for (int64_t i = 0; i < A.rows; ++i) {
    set_zero(Tmat.row(i));
    Tmat(i, i) = beta[i];
    for (int64_t j = 0; j < i; ++j) add_scaled({Tmat.row(i).data, j + 1}, -A(i, j), Tmat.row(j));
  }
}

void wy_values(Matrix Tmat, Matrix v, Matrix U) noexcept {
  for (int64_t i = 0; i < v.rows; ++i) {
    set_zero(U.row(i));
    for (int64_t j = 0; j <= i; ++j) add_scaled(U.row(i), Tmat(i, j), v.row(j));
  }
}

void wy_keys(Matrix Tmat, Matrix G, Matrix k, Matrix W) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) set_zero(W.row(i));
  for (int64_t j = 0; j < k.rows; ++j) {
    for (int64_t l = 0; l < k.cols; ++l) {
      const double decayed = std::exp(G(j, channel(G, l))) * k(j, l);
      for (int64_t i = j; i < k.rows; ++i) W(i, l) += Tmat(i, j) * decayed;
    }
  }
}

void corrected_values(Matrix U, Matrix W, Matrix S, Matrix v_new) noexcept {
  for (int64_t i = 0; i < U.rows; ++i) {
    for (int64_t j = 0; j < U.cols; ++j) v_new(i, j) = U(i, j);
    for (int64_t l = 0; l < S.rows; ++l) add_scaled(v_new.row(i), -W(i, l), S.row(l));
  }
}

void chunk_o(Matrix q, Matrix k, Matrix v_new, Matrix G, Matrix S, double scale,
             Matrix o) noexcept {
  for (int64_t i = 0; i < q.rows; ++i) {
    set_zero(o.row(i));
    for (int64_t l = 0; l < S.rows; ++l) {
      add_scaled(o.row(i), scale * std::exp(G(i, channel(G, l))) * q(i, l), S.row(l));
    }
    for (int64_t j = 0; j <= i; ++j) {
      const double score = decayed_dot(q.row(i), k.row(j), G.row(i), G.row(j));
      add_scaled(o.row(i), scale * score, v_new.row(j));
    }
  }
}

void chunk_h(Matrix k, Matrix v_new, Matrix G, Matrix S) noexcept {
  for (int64_t l = 0; l < S.rows; ++l) {
    const int64_t at = channel(G, l);
    const double last = G(G.rows - 1, at), kept = std::exp(last);
    for (int64_t j = 0; j < S.cols; ++j) S(l, j) *= kept;
    for (int64_t i = 0; i < k.rows; ++i) {
      add_scaled(S.row(l), k(i, l) * std::exp(last - G(i, at)), v_new.row(i));
    }
  }
}

ChunkForm::Scratch::Scratch(Arena& arena, int64_t K, int64_t V, int64_t channels) noexcept
    : G(arena.matrix(kBlock, channels)),
      A(arena.matrix(kBlock, kBlock)),
      Tmat(arena.matrix(kBlock, kBlock)),
      W(arena.matrix(kBlock, K)),
      U(arena.matrix(kBlock, V)),
      v_new(arena.matrix(kBlock, V)) {}

void ChunkForm::advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept {
  const int64_t C = block.q.rows;
  const Matrix G = scratch.G.top(C);
  chunk_cumsum(block.g, G);
  Matrix v_new = block.v;  // as they are, with LINEAR_ATTENTION
  if (block.rule == SLUICE_RULE_GATED_DELTA) {
    const Matrix A = square(scratch.A, C), Tmat = square(scratch.Tmat, C);
    const Matrix U = scratch.U.top(C), W = scratch.W.top(C);
    v_new = scratch.v_new.top(C);
    scaled_dot_kkt(block.beta, G, block.k, A);
    solve_tril(A, block.beta, Tmat);
    wy_values(Tmat, block.v, U);
    wy_keys(Tmat, G, block.k, W);
    corrected_values(U, W, S, v_new);
  }
  chunk_o(block.q, block.k, v_new, G, S, block.scale, o);
  chunk_h(block.k, v_new, G, S);
}

void decay(Matrix S, Vector g) noexcept {
  double alpha = 1.0;
  for (int64_t i = 0; i < S.rows; ++i) {
    if (i < g.size) alpha = std::exp(g[i]);
    for (int64_t j = 0; j < S.cols; ++j) S(i, j) *= alpha;
  }
}

void read(Matrix S, Vector x, Vector y) noexcept {
  for (int64_t j = 0; j < S.cols; ++j) y[j] = 0.0;
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) y[j] += x[i] * S(i, j);
  }
}

void error(Vector v, Vector prediction, double beta, Vector delta) noexcept {
  for (int64_t j = 0; j < v.size; ++j) delta[j] = beta * (v[j] - prediction[j]);
}

void write(Matrix S, Vector k, Vector delta) noexcept {
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) S(i, j) += k[i] * delta[j];
  }
}

RecurrentForm::Scratch::Scratch(Arena& arena, int64_t /*K*/, int64_t V,
                                int64_t /*channels*/) noexcept
    : prediction(arena.vector(V)), delta(arena.vector(V)) {}

void RecurrentForm::advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept {
  for (int64_t t = 0; t < block.q.rows; ++t) {
    decay(S, block.g.row(t));
    if (block.rule == SLUICE_RULE_LINEAR_ATTENTION) {
      write(S, block.k.row(t), block.v.row(t));
    } else {
      read(S, block.k.row(t), scratch.prediction);
      error(block.v.row(t), scratch.prediction, block.beta[t], scratch.delta);
      write(S, block.k.row(t), scratch.delta);
    }
    read(S, block.q.row(t), o.row(t));
    for (int64_t j = 0; j < o.cols; ++j) o(t, j) *= block.scale;
  }
}

}  // namespace sluice::ref
