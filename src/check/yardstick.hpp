// Computes the chunk form with exact arithmetic between the rounding points that the 16-bit kernels
// declare (docs/math.md section 6), also head by head with key-wise gates. It says what the algorithm can
// deliver on an input.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_YARDSTICK_HPP_
#define SLUICE_CHECK_YARDSTICK_HPP_

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

  /// Key head that value head h reads.
  int64_t key_head(int64_t h) const noexcept {
    const int64_t H = q.shape[2];
    return cyclic_heads ? h % H : h / (v.shape[2] / H);
  }
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

}  // namespace sluice::check

#endif  // SLUICE_CHECK_YARDSTICK_HPP_
