// Declares both forms of the recurrence: the chunk form (docs/math.md section 2), one function per
// equation, which together are the float64 twins of the staged chain, and the recurrence token by token
// (section 1), the truth of all tests. C tokens, key dimension K, value dimension V.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_FORMS_HPP_
#define SLUICE_REF_FORMS_HPP_

#include "ref/matrix.hpp"

namespace sluice::ref {

// Gates g and their sums G are [C, 1], or with key-wise gates [C, K]: l is the channel of both, and
// scalar gates have one for all channels of k.

/// G_il = sum_{j <= i} g_jl.
void chunk_cumsum(Matrix g, Matrix G) noexcept;
/// sum over l of x_l y_l exp(G_l - H_l): of scalar gates Gamma_ij (x . y).
double decayed_dot(Vector x, Vector y, Vector G, Vector H) noexcept;
/// A_ij = beta_i sum over l of k_il k_jl exp(G_il - G_jl) for i > j, else 0.
void scaled_dot_kkt(Vector beta, Matrix G, Matrix k, Matrix A) noexcept;
/// Tmat = (I + A)^-1 diag(beta), by forward substitution: no series, nothing truncated.
void solve_tril(Matrix A, Vector beta, Matrix Tmat) noexcept;
/// U = Tmat V.
void wy_values(Matrix Tmat, Matrix v, Matrix U) noexcept;
/// W = Tmat (exp(G) * K).
void wy_keys(Matrix Tmat, Matrix G, Matrix k, Matrix W) noexcept;
/// v_new = U - W S, S the state that enters the chunk.
void corrected_values(Matrix U, Matrix W, Matrix S, Matrix v_new) noexcept;
/// o = scale ((exp(G) * Q) S + P v_new), P_ij = sum over l of q_il k_jl exp(G_il - G_jl), i >= j; S
/// is the state that enters the chunk.
void chunk_o(Matrix q, Matrix k, Matrix v_new, Matrix G, Matrix S, double scale, Matrix o) noexcept;
/// S <- diag(exp(G_C)) S + (exp(G_C - G) * K)^T v_new.
void chunk_h(Matrix k, Matrix v_new, Matrix G, Matrix S) noexcept;

/// The chunk form: S and o of up to kBlock tokens at once.
struct ChunkForm {
  static constexpr int64_t kBlock = 64;

  struct Scratch {
    Scratch(Arena& arena, int64_t K, int64_t V, int64_t channels) noexcept;
    Matrix G;         ///< [C, channels]
    Matrix A, Tmat;   ///< [C, C]
    Matrix W;         ///< [C, K]
    Matrix U, v_new;  ///< [C, V]
  };

  /// S <- the state after the block's tokens, o [C, V] <- their outputs.
  static void advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept;
};

/// S <- diag(alpha) S, alpha = exp(g): one for all rows, or with key-wise gates [K].
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
    Scratch(Arena& arena, int64_t K, int64_t V, int64_t channels) noexcept;
    Vector prediction, delta;  ///< [V]
  };

  /// S <- the state after the block's tokens, o [C, V] <- scale S_t^T q_t.
  static void advance(const Block& block, Matrix S, Matrix o, Scratch& scratch) noexcept;
};

}  // namespace sluice::ref

#endif  // SLUICE_REF_FORMS_HPP_
