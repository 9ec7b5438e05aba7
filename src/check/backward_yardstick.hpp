// Computes the yardstick of gradients: the chunk form of math.md section 8 with exact arithmetic
// between the rounding points that kernels on tensor cores declare (docs/kernels/backward.md). It
// says what the algorithm can deliver on an input; without rounding it is exact.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_BACKWARD_YARDSTICK_HPP_
#define SLUICE_CHECK_BACKWARD_YARDSTICK_HPP_

#include "check/gdn_case.hpp"

namespace sluice::check {

/// Gradients of a loss by the results of a prefill.
struct ResultGradients {
  Array d_o;      ///< [B,T,HV,V], as stored
  Array d_final;  ///< [N,HV,K,V], or empty
};

/// By the inputs as they are given: raw q and k, the gate in its space, the beta argument.
struct InputGradients {
  Array q, k, v;         ///< [B,T,H,K], [B,T,H,K], [B,T,HV,V]
  Array gate, beta;      ///< [B,T,HV]; empty where there is no such input
  Array A_log, dt_bias;  ///< [HV]; raw gates only
  Array initial;         ///< [N,HV,K,V]
};

/// On the inputs of a case, in chunks of 64 tokens, operands rounded to the case's io dtype
/// (float32 and float64: nowhere), as are stored dq, dk and dv. Rows past the last sequence mean
/// nothing.
InputGradients backward_yardstick_of(const GdnCase& gdn_case, const GdnInputs& inputs,
                                     const ResultGradients& results);

}  // namespace sluice::check

#endif  // SLUICE_CHECK_BACKWARD_YARDSTICK_HPP_
