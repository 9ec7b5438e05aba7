// Declares the recurrence token by token (docs/math.md section 1): the truth of all tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_RECURRENT_FORM_HPP_
#define SLUICE_REF_RECURRENT_FORM_HPP_

#include "ref/block.hpp"

namespace sluice::ref {

/// S <- alpha S, alpha = exp(g).
void decay(Matrix S, double g) noexcept;
/// S <- diag(alpha) S, alpha = exp(g), [K]: key-wise gates.
void decay(Matrix S, Vector g) noexcept;
/// y = S^T x, [V].
void read(Matrix S, Vector x, Vector y) noexcept;
/// delta = beta (v - prediction), with prediction = S^T k of the decayed state.
void error(Vector v, Vector prediction, double beta, Vector delta) noexcept;
/// S <- S + k delta^T.
void write(Matrix S, Vector k, Vector delta) noexcept;

/// The recurrence as a form: S and o of one token after another.
struct RecurrentForm {
  static constexpr int64_t kBlock = 1;

  struct Scratch {
    Scratch(Arena& arena, int64_t K, int64_t V) noexcept;
    Vector prediction, delta;  ///< [V]
  };

  /// S <- the state after the block's tokens, o [C, V] <- scale S_t^T q_t.
  static void advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept;
};

}  // namespace sluice::ref

#endif  // SLUICE_REF_RECURRENT_FORM_HPP_
