// Computes the chunk form with exact arithmetic between the rounding points that the 16-bit kernels
// declare (docs/math.md section 6), also head by head with key-wise gates. It says what the algorithm can
// deliver on an input.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_YARDSTICK_HPP_
#define SLUICE_CHECK_YARDSTICK_HPP_

#include <utility>
#include <vector>

#include "check/array.hpp"

namespace sluice::check {

struct YardstickInputs {
  Array q, k;                       ///< [B,T,H,K], as stored
  Array v;                          ///< [B,T,HV,V], as stored
  Array g;                          ///< [B,T,HV] or [B,T,HV,K] log gates, or empty
  Array beta;                       ///< [B,T,HV] write strengths, or empty
  Array initial;                    ///< [N,HV,K,V], or empty
  std::vector<int64_t> cu_seqlens;  ///< packed sequences, or empty
  double scale = 1.0;
  double l2norm_eps = 0.0;  ///< of an l2 norm inside the operator; 0 = none
  bool cyclic_heads = false;
  bool linear_attention = false;
};

struct YardstickOutputs {
  Array o;            ///< [B,T,HV,V]; NaN in rows past the last sequence
  Array final_state;  ///< [N,HV,K,V]
};

/// Rounds to `io` (float64 or float32: nowhere but in stores) and stores states as `state`. Chunks
/// of 64 tokens.
YardstickOutputs evaluate_yardstick(const YardstickInputs& inputs, sluice_dtype io,
                                    sluice_dtype state);

inline constexpr double kLowestLogGate = -128.0;

/// One value head of one sequence, one chunk after another: what both kinds of gates share.
class HeadChunks {
 public:
  HeadChunks(const YardstickInputs& inputs, sluice_dtype io, Array S)
      : inputs_(inputs), io_(same_dtype(io, kF32) ? kF64 : io), stored_as_(io), S_(std::move(S)) {}
  const Array& state() const noexcept { return S_; }

 protected:
  /// q, k, v and beta of tokens begin .. begin + C - 1 of `batch`.
  void load_rows(int64_t batch, int64_t begin, int64_t C, int64_t h);
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

/// NUM: the scaled tiles of queries and keys are rounded operands, and nothing else that scalar gates
/// have not.
class KeyEvaluation : public HeadChunks {
 public:
  using HeadChunks::HeadChunks;

  /// Tokens begin .. begin + C - 1 of `batch`; writes their rows of o.
  void advance(int64_t batch, int64_t begin, int64_t C, int64_t h, Array* o);

 private:
  void load_chunk(int64_t batch, int64_t begin, int64_t C, int64_t h);
  Array scaled(const Array& rows, bool to_end, double factor) const;
  Array products(const Array& rows) const;
  Array corrected_values(const Array& stored_S) const;

  Array G_;  // [C,K]
};

}  // namespace sluice::check

#endif  // SLUICE_CHECK_YARDSTICK_HPP_
