// Computes the equations of the chunk form in double.
// SPDX-License-Identifier: Apache-2.0
#include "ref/forms.hpp"

#include <cmath>

namespace sluice::ref {
namespace {

void set_zero(Vector x) noexcept {
  for (int64_t i = 0; i < x.size; ++i) x[i] = 0.0;
}

/// Top left corner of a [kBlock, kBlock] buffer as a dense [C, C] matrix.
Matrix square(Matrix buffer, int64_t C) noexcept { return {buffer.data, C, C}; }

}  // namespace

void chunk_cumsum(Vector g, Vector G) noexcept {
  double sum = 0.0;
  for (int64_t i = 0; i < g.size; ++i) G[i] = sum += g[i];
}

void decay_mask(Vector G, Matrix Gamma) noexcept {
  for (int64_t i = 0; i < G.size; ++i) {
    for (int64_t j = 0; j < G.size; ++j) Gamma(i, j) = j <= i ? std::exp(G[i] - G[j]) : 0.0;
  }
}

void scaled_dot_kkt(Vector beta, Matrix Gamma, Matrix k, Matrix A) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) {
    for (int64_t j = 0; j < k.rows; ++j) {
      A(i, j) = j < i ? beta[i] * Gamma(i, j) * dot(k.row(i), k.row(j)) : 0.0;
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

void wy_keys(Matrix Tmat, Vector G, Matrix k, Matrix W) noexcept {
  for (int64_t i = 0; i < k.rows; ++i) {
    set_zero(W.row(i));
    for (int64_t j = 0; j <= i; ++j) add_scaled(W.row(i), Tmat(i, j) * std::exp(G[j]), k.row(j));
  }
}

void corrected_values(Matrix U, Matrix W, Matrix S, Matrix v_new) noexcept {
  for (int64_t i = 0; i < U.rows; ++i) {
    for (int64_t j = 0; j < U.cols; ++j) v_new(i, j) = U(i, j);
    for (int64_t l = 0; l < S.rows; ++l) add_scaled(v_new.row(i), -W(i, l), S.row(l));
  }
}

void chunk_o(Matrix q, Matrix k, Matrix v_new, Vector G, Matrix Gamma, Matrix S, double scale,
             Matrix o) noexcept {
  for (int64_t i = 0; i < q.rows; ++i) {
    set_zero(o.row(i));
    for (int64_t l = 0; l < S.rows; ++l) {
      add_scaled(o.row(i), scale * std::exp(G[i]) * q(i, l), S.row(l));
    }
    for (int64_t j = 0; j <= i; ++j) {
      add_scaled(o.row(i), scale * Gamma(i, j) * dot(q.row(i), k.row(j)), v_new.row(j));
    }
  }
}

void chunk_h(Matrix k, Matrix v_new, Vector G, Matrix S) noexcept {
  const double last = G[G.size - 1];
  for (int64_t l = 0; l < S.rows; ++l) {
    for (int64_t j = 0; j < S.cols; ++j) S(l, j) *= std::exp(last);
    for (int64_t i = 0; i < k.rows; ++i) {
      add_scaled(S.row(l), k(i, l) * std::exp(last - G[i]), v_new.row(i));
    }
  }
}

ChunkForm::Scratch::Scratch(Arena& arena, int64_t K, int64_t V) noexcept
    : G(arena.vector(kBlock)),
      key_G(arena.matrix(kBlock, K)),
      Gamma(arena.matrix(kBlock, kBlock)),
      A(arena.matrix(kBlock, kBlock)),
      Tmat(arena.matrix(kBlock, kBlock)),
      W(arena.matrix(kBlock, K)),
      U(arena.matrix(kBlock, V)),
      v_new(arena.matrix(kBlock, V)) {}

namespace {

/// What a block's tokens write. kkt(A) fills A; G: [C], or [C, K] with key-wise gates.
template <class Sums, class Kkt>
Matrix new_values(const Block& block, const Sums& G, Matrix S, ChunkForm::Scratch& scratch,
                  const Kkt& kkt) noexcept {
  if (block.rule != SLUICE_RULE_GATED_DELTA) return block.v;  // as they are
  const int64_t C = block.q.rows;
  const Matrix A = square(scratch.A, C), Tmat = square(scratch.Tmat, C);
  const Matrix U = scratch.U.top(C), W = scratch.W.top(C), v_new = scratch.v_new.top(C);
  kkt(A);
  solve_tril(A, block.beta, Tmat);
  wy_values(Tmat, block.v, U);
  wy_keys(Tmat, G, block.k, W);
  corrected_values(U, W, S, v_new);
  return v_new;
}

}  // namespace

void ChunkForm::advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept {
  const int64_t C = block.q.rows;
  if (block.key_g.rows > 0) {
    const Matrix G = scratch.key_G.top(C);
    key_cumsum(block.key_g, G);
    const Matrix v_new = new_values(
        block, G, S, scratch, [&](Matrix A) { key_scaled_dot_kkt(block.beta, G, block.k, A); });
    chunk_o(block.q, block.k, v_new, G, S, block.scale, o);
    return chunk_h(block.k, v_new, G, S);
  }
  const Vector G{scratch.G.data, C};
  const Matrix Gamma = square(scratch.Gamma, C);
  chunk_cumsum(block.g, G);
  decay_mask(G, Gamma);
  const Matrix v_new = new_values(block, G, S, scratch,
                                  [&](Matrix A) { scaled_dot_kkt(block.beta, Gamma, block.k, A); });
  chunk_o(block.q, block.k, v_new, G, Gamma, S, block.scale, o);
  chunk_h(block.k, v_new, G, S);
}

}  // namespace sluice::ref
