// Computes activations, gates, write strengths and l2 norms in double (docs/math.md section 3).
// SPDX-License-Identifier: Apache-2.0
#include "ref/gates.hpp"

#include <cmath>

#include "ref/access.hpp"

namespace sluice::ref {

double sigmoid(double x) noexcept { return 1.0 / (1.0 + std::exp(-x)); }

double softplus(double x) noexcept { return x > 20.0 ? x : std::log1p(std::exp(x)); }

double activate(sluice_activation activation, double x) noexcept {
  switch (activation) {
    case SLUICE_ACTIVATION_SILU:
      return x * sigmoid(x);
    case SLUICE_ACTIVATION_SIGMOID:
      return sigmoid(x);
    default:
      return x;
  }
}

double activation_slope(sluice_activation activation, double x) noexcept {
  const double s = sigmoid(x);
  switch (activation) {
    case SLUICE_ACTIVATION_SILU:
      return s * (1.0 + x * (1.0 - s));
    case SLUICE_ACTIVATION_SIGMOID:
      return s * (1.0 - s);
    default:
      return 1.0;
  }
}

double clamped_log_gate(double g) noexcept {
  // WHY: written so that NaN passes, where std::max would swallow it.
  return g < kLowestLogGate ? kLowestLogGate : g;
}

namespace {

/// The argument of a bounded gate's sigmoid, and its derivative by a.
struct BoundedArgument {
  double rate, value;
};

BoundedArgument bounded_argument(const core::DeltaRuleProblem& problem, double a, double bias,
                                 int64_t h) noexcept {
  const double rate = core::present(problem.A_log) ? std::exp(load(problem.A_log, h)) : 1.0;
  return {rate, rate * (a + bias)};
}

bool key_wise(const core::DeltaRuleProblem& problem) noexcept {
  return core::present(problem.key_gate);
}

/// The gate as given.
double gate_at(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token, int64_t h,
               int64_t i) noexcept {
  return key_wise(problem) ? load(problem.key_gate, batch, token, h, i)
                           : load(problem.gate, batch, token, h / problem.r, h % problem.r);
}

/// dt_bias of channel i; 0 without.
double bias_at(const core::DeltaRuleProblem& problem, int64_t h, int64_t i) noexcept {
  if (!core::present(problem.dt_bias)) return 0.0;
  return key_wise(problem) ? load(problem.dt_bias, h, i) : load(problem.dt_bias, h);
}

double unclamped_log_gate(const core::DeltaRuleProblem& problem, double gate, double bias,
                          int64_t h) noexcept {
  switch (problem.gate_space) {
    case SLUICE_GATE_LINEAR:
      return std::log(gate);
    case SLUICE_GATE_RAW:
      return -std::exp(load(problem.A_log, h)) * softplus(gate + bias);
    case SLUICE_GATE_RAW_BOUNDED:
      return problem.gate_lower_bound * sigmoid(bounded_argument(problem, gate, bias, h).value);
    default:
      return gate;
  }
}

}  // namespace

int64_t gate_channels(const core::DeltaRuleProblem& problem) noexcept {
  return key_wise(problem) ? problem.K : 1;
}

double log_gate(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token, int64_t h,
                int64_t i) noexcept {
  if (!key_wise(problem) && !core::present(problem.gate)) return 0.0;
  const double gate = gate_at(problem, batch, token, h, i);
  return clamped_log_gate(unclamped_log_gate(problem, gate, bias_at(problem, h, i), h));
}

double write_strength(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                      int64_t h) noexcept {
  if (!core::present(problem.beta)) return problem.beta_factor;
  const double b = load(problem.beta, batch, token, h / problem.r, h % problem.r);
  return problem.beta_factor * (problem.beta_space == SLUICE_BETA_LOGIT ? sigmoid(b) : b);
}

GateSlopes log_gate_slopes(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                           int64_t h, int64_t i) noexcept {
  if (!key_wise(problem) && !core::present(problem.gate)) return {};
  const double gate = gate_at(problem, batch, token, h, i), bias = bias_at(problem, h, i);
  const double g = unclamped_log_gate(problem, gate, bias, h);
  if (g < kLowestLogGate) return {};
  switch (problem.gate_space) {
    case SLUICE_GATE_LINEAR:
      return {1.0 / gate, 0.0};
    case SLUICE_GATE_RAW: {
      const double x = gate + bias;
      return {-std::exp(load(problem.A_log, h)) * (x > 20.0 ? 1.0 : sigmoid(x)), g};
    }
    case SLUICE_GATE_RAW_BOUNDED: {
      const BoundedArgument y = bounded_argument(problem, gate, bias, h);
      const double slope = g * sigmoid(-y.value);  // by y
      return {slope * y.rate, slope * y.value};
    }
    default:
      return {1.0, 0.0};
  }
}

double write_strength_slope(const core::DeltaRuleProblem& problem, int64_t batch, int64_t token,
                            int64_t h) noexcept {
  if (problem.beta_space == SLUICE_BETA_VALUE) return problem.beta_factor;
  const double s = sigmoid(load(problem.beta, batch, token, h / problem.r, h % problem.r));
  return problem.beta_factor * s * (1.0 - s);
}

void l2_normalise(Vector x, double eps) noexcept {
  double sum = 0.0;
  for (int64_t i = 0; i < x.size; ++i) sum += x[i] * x[i];
  const double factor = 1.0 / std::sqrt(sum + eps);
  for (int64_t i = 0; i < x.size; ++i) x[i] *= factor;
}

}  // namespace sluice::ref
