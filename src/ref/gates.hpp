// Declares the scalar functions of docs/math.md section 3: activations, gates, write strengths, l2
// norm.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_GATES_HPP_
#define SLUICE_REF_GATES_HPP_

#include "core/problem.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// g below this is clamped to it: exp(-128) is zero in float32, and -inf becomes legal.
constexpr double kLowestLogGate = -128.0;

/// sigmoid(x) = 1 / (1 + exp(-x)).
double sigmoid(double x) noexcept;
/// softplus(x) = x for x > 20, else log(1 + exp(x)).
double softplus(double x) noexcept;
/// silu(x) = x sigmoid(x); NONE is the identity.
double activate(sluice_activation activation, double x) noexcept;
/// Its derivative.
double activation_slope(sluice_activation activation, double x) noexcept;

/// g, but at least kLowestLogGate.
double clamped_log_gate(double g) noexcept;
/// Gates that a token has in a value head: K where they are key-wise, else 1.
int64_t gate_channels(const core::DeltaRuleProblem& problem) noexcept;
/// g of value head h at (batch, token), clamped: the gate itself, ln(alpha), or
/// -exp(A_log) softplus(a + dt_bias), or lower bound * sigmoid(exp(A_log) (a + dt_bias)); 0 without.
/// With key-wise gates that of channel i, dt_bias being [HV, K]; else i is 0.
double log_gate(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token, int64_t h,
                int64_t i) noexcept;
/// beta of value head h at (batch, token): the value or sigmoid(b), times 2 with negative
/// eigenvalues; an absent beta counts as 1.
double write_strength(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                      int64_t h) noexcept;

/// Derivatives of log_gate() by what it is made of; zeros where the clamp acts, or without a gate.
struct GateSlopes {
  double gate = 0.0;   ///< by the gate as given; of raw gates by dt_bias too
  double A_log = 0.0;  ///< of raw gates
};
GateSlopes log_gate_slopes(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                           int64_t h, int64_t i) noexcept;
/// Derivative of write_strength() by beta as given.
double write_strength_slope(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                            int64_t h) noexcept;

/// x <- x / sqrt(sum(x^2) + eps).
void l2_normalise(Vector x, double eps) noexcept;

}  // namespace sluice::ref

#endif  // SLUICE_REF_GATES_HPP_
