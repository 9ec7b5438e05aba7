// Computes the recurrence token by token in double: decay, read, error, write.
// SPDX-License-Identifier: Apache-2.0
#include "ref/forms.hpp"

#include <cmath>

namespace sluice::ref {

void decay(Matrix S, double g) noexcept {
  const double alpha = std::exp(g);
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) S(i, j) *= alpha;
  }
}

void decay(Matrix S, Vector g) noexcept {
  for (int64_t i = 0; i < S.rows; ++i) {
    const double alpha = std::exp(g[i]);
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

RecurrentForm::Scratch::Scratch(Arena& arena, int64_t /*K*/, int64_t V) noexcept
    : prediction(arena.vector(V)), delta(arena.vector(V)) {}

void RecurrentForm::advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept {
  for (int64_t t = 0; t < block.q.rows; ++t) {
    block.key_g.rows > 0 ? decay(S, block.key_g.row(t)) : decay(S, block.g[t]);
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
