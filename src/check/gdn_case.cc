// Makes inputs from profiles, and from inputs what truth and yardstick need.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "check/gdn_case.hpp"

namespace sluice::check {
namespace {

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }
/// x with softplus(x) = y >= 0.
double inverse_softplus(double y) { return y > 20.0 ? y : std::log(std::expm1(y)); }

/// Numbers of a token of gates [B,T,HV] or [B,T,HV,K].
size_t gate_columns(const Array& gates) {
  const size_t heads = static_cast<size_t>(gates.shape[2]);
  return gates.shape.size() == 4 ? heads * static_cast<size_t>(gates.shape[3]) : heads;
}
/// Head of the element at flat position i of such an array.
size_t head_of(const Array& gates, size_t i) {
  const size_t columns = gate_columns(gates);
  return i % columns * static_cast<size_t>(gates.shape[2]) / columns;
}

/// Gives the rows lengths between 1/2 and 8, for operators that normalise them again.
void scale_rows(Array* rows, uint64_t seed) {
  Random random(seed);
  const auto width = static_cast<size_t>(rows->shape.back());
  for (size_t start = 0; start < rows->values.size(); start += width) {
    const double length = std::exp2(4.0 * random.uniform() - 1.0);
    for (size_t i = 0; i < width; ++i) rows->values[start + i] *= length;
  }
}

/// A parameter of raw gates, zero where bounded ones have none.
double parameter(const Array& parameters, size_t at) {
  return parameters.empty() ? 0.0 : parameters.values[at];
}

/// x of a bounded gate, g = bound * sigmoid(x), where g is not near its ends.
double inverse_bounded(double g, double bound) {
  const double part = std::clamp(g / bound, 1e-6, 1.0 - 1e-6);
  return std::log(part / (1.0 - part));
}

/// The gate argument whose log gate is g, and the per-head parameters of raw gates.
void encode_gates(const GdnCase& c, Array g, GdnInputs* inputs) {
  const bool bounded = c.options.gate_space == SLUICE_GATE_RAW_BOUNDED;
  if (c.options.gate_space == SLUICE_GATE_RAW || bounded) {
    inputs->A_log = Array({c.HV}), inputs->dt_bias = Array({c.HV});
    if (c.key_gates) inputs->dt_bias = Array({c.HV, c.K});
    Random random(c.seed + 20);
    for (double& value : inputs->A_log.values) value = round_to(kF32, 2.0 * random.uniform());
    for (double& value : inputs->dt_bias.values) value = round_to(kF32, random.normal());
  }
  for (size_t i = 0; i < g.values.size(); ++i) {
    const size_t h = head_of(g, i), column = i % gate_columns(g);
    double& gate = g.values[i];
    if (c.options.gate_space == SLUICE_GATE_LINEAR) gate = std::exp(gate);
    if (c.options.gate_space == SLUICE_GATE_RAW) {
      gate = inverse_softplus(-gate / std::exp(inputs->A_log.values[h])) -
             inputs->dt_bias.values[column];
    }
    if (bounded) {
      gate = inverse_bounded(gate, c.options.gate_lower_bound) / std::exp(inputs->A_log.values[h]) -
             inputs->dt_bias.values[column];
    }
  }
  inputs->gate = round_to(c.gate_dtype, std::move(g));
}

/// The beta argument whose write strength is `beta`.
void encode_betas(const GdnCase& c, Array beta, GdnInputs* inputs) {
  for (double& value : beta.values) {
    if (c.options.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE) value /= 2.0;
    if (c.options.beta_space == SLUICE_BETA_LOGIT) value = std::log(value / (1.0 - value));
  }
  inputs->beta = round_to(c.gate_dtype, std::move(beta));
}

/// Log gates of the gate argument as stored.
Array decode_gates(const GdnCase& c, const GdnInputs& inputs) {
  Array g = inputs.gate;
  for (size_t i = 0; i < g.values.size(); ++i) {
    const size_t h = head_of(g, i), column = i % gate_columns(g);
    double& gate = g.values[i];
    if (c.options.gate_space == SLUICE_GATE_LINEAR) gate = std::log(gate);
    if (c.options.gate_space == SLUICE_GATE_RAW) {
      gate = -std::exp(inputs.A_log.values[h]) * softplus(gate + inputs.dt_bias.values[column]);
    }
    if (c.options.gate_space == SLUICE_GATE_RAW_BOUNDED) {
      const double x =
          std::exp(parameter(inputs.A_log, h)) * (gate + parameter(inputs.dt_bias, column));
      gate = c.options.gate_lower_bound / (1.0 + std::exp(-x));
    }
  }
  return g;
}

/// Write strengths of the beta argument as stored.
Array decode_betas(const GdnCase& c, const GdnInputs& inputs) {
  const double factor = c.options.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  Array beta = inputs.beta;
  if (beta.empty() && factor != 1.0) beta = Array({c.B, c.T, c.HV}, 1.0);
  for (double& value : beta.values) {
    value = factor *
            (c.options.beta_space == SLUICE_BETA_LOGIT ? 1.0 / (1.0 + std::exp(-value)) : value);
  }
  return beta;
}

}  // namespace

int64_t GdnCase::sequences() const noexcept {
  return lengths.empty() ? B : static_cast<int64_t>(lengths.size());
}

std::vector<int64_t> GdnCase::cu_seqlens() const {
  if (lengths.empty()) return {};
  std::vector<int64_t> offsets(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

GdnInputs make_inputs(const GdnCase& c) {
  GdnInputs inputs;
  const std::vector<int64_t> keys{c.B, c.T, c.H, c.K}, heads{c.B, c.T, c.HV};
  Array q = make_keys(KeyProfile::kRandomUnit, keys, c.seed + 10);
  Array k = make_keys(c.keys, keys, c.seed + 11);
  if (c.options.qk_norm == SLUICE_QK_NORM_L2) {
    scale_rows(&q, c.seed + 12);
    scale_rows(&k, c.seed + 13);
  }
  inputs.q = round_to(c.io, std::move(q));
  inputs.k = round_to(c.io, std::move(k));
  inputs.v = round_to(c.io, make_values(c.values, {c.B, c.T, c.HV, c.V}, c.seed + 14));
  if (c.gates != GateProfile::kNone) {
    encode_gates(c,
                 c.key_gates ? make_key_gates(c.gates, {c.B, c.T, c.HV, c.K}, c.seed + 15)
                             : make_gates(c.gates, heads, c.seed + 15),
                 &inputs);
  }
  if (c.betas != BetaProfile::kAbsent && c.options.rule == SLUICE_RULE_GATED_DELTA) {
    encode_betas(c, make_betas(c.betas, heads, c.seed + 16), &inputs);
  }
  inputs.initial =
      round_to(c.state_dtype, make_states(c.initial, {c.sequences(), c.HV, c.K, c.V}, c.seed + 17));
  return inputs;
}

YardstickInputs yardstick_inputs_of(const GdnCase& c, const GdnInputs& inputs) {
  YardstickInputs y;
  y.q = inputs.q, y.k = inputs.k, y.v = inputs.v;
  y.g = decode_gates(c, inputs);
  y.beta = decode_betas(c, inputs);
  y.initial = inputs.initial;
  for (const int64_t n : c.no_initial) {
    const int64_t size = c.HV * c.K * c.V;
    if (!y.initial.empty()) std::fill_n(&y.initial(n, 0, 0, 0), size, 0.0);
  }
  y.cu_seqlens = c.cu_seqlens();
  y.scale = c.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(c.K)));
  y.l2norm_eps = c.options.qk_norm == SLUICE_QK_NORM_L2 ? 1e-6 : 0.0;
  y.cyclic_heads = c.options.head_map == SLUICE_HEAD_MAP_CYCLIC;
  y.linear_attention = c.options.rule == SLUICE_RULE_LINEAR_ATTENTION;
  return y;
}

YardstickOutputs yardstick_of(const GdnCase& c, const GdnInputs& inputs) {
  return evaluate_yardstick(yardstick_inputs_of(c, inputs), c.io, c.state_dtype);
}

}  // namespace sluice::check
