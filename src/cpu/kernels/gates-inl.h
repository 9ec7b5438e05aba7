// Computes decays and write strengths from what the caller calls gate and beta, a vector at a time,
// and the l2 norm of q and k.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_GATES_INL_H_
#undef SLUICE_CPU_KERNELS_GATES_INL_H_
#else
#define SLUICE_CPU_KERNELS_GATES_INL_H_
#endif

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/convert-inl.h"
#include "cpu/kernels/delta_rule.hpp"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatVec = hn::Vec<FloatTag>;

constexpr float kSmallestGate = -128.0f;  // sluice.h: each g is clamped here, so that -inf is legal

// WHY: selects instead of Max, and explicit NaN lanes: a NaN in an input must reach its outputs.
HWY_INLINE FloatVec keep_nan(FloatVec x, FloatVec result) {
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE FloatVec clamp_gate(FloatVec g) {
  const auto low = hn::Set(FloatTag(), kSmallestGate);
  return hn::IfThenElse(hn::Lt(g, low), low, g);
}

/// exp(x) for x <= 0; 0 below -85, NaN for NaN.
HWY_INLINE FloatVec exp_nonpositive(FloatVec x) {
  const FloatTag d;
  const auto limit = hn::Set(d, -kExpLimit);
  const auto result = exp_limited(d, hn::Max(x, limit));
  return keep_nan(x, hn::IfThenZeroElse(hn::Lt(x, limit), result));
}

/// log(1 + x) for 0 <= x <= 1, about 2 ulp.
HWY_INLINE FloatVec log1p_of_fraction(FloatVec x) {
  const FloatTag d;
  // log(1 + x) = 2 artanh(s), s = x / (2 + x) <= 1/3; the series' next term is 2e-8 of it.
  const auto s = hn::Div(x, hn::Add(x, hn::Set(d, 2.0f))), twice = hn::Add(s, s);
  const auto z = hn::Mul(s, s);
  auto p = hn::MulAdd(hn::Set(d, 1.0f / 13), z, hn::Set(d, 1.0f / 11));
  p = hn::MulAdd(p, z, hn::Set(d, 1.0f / 9));
  p = hn::MulAdd(p, z, hn::Set(d, 1.0f / 7));
  p = hn::MulAdd(p, z, hn::Set(d, 1.0f / 5));
  p = hn::MulAdd(p, z, hn::Set(d, 1.0f / 3));
  return hn::MulAdd(hn::Mul(twice, z), p, twice);
}

/// softplus(x) = log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). PERF a model's layer has K of
/// them a head and token: 7.2 -> 4.5 ms of 1024 tokens and 32 heads where Highway's functions, which
/// hold for all floats, were before (Zen 4, 2026-11).
HWY_INLINE FloatVec softplus(FloatVec x) {
  const FloatTag d;
  const auto rest = log1p_of_fraction(exp_nonpositive(hn::Neg(hn::Abs(x))));
  return keep_nan(x, hn::Add(hn::Max(x, hn::Zero(d)), rest));
}

/// g (clamped) of one vector of gates, whose rates and biases may differ.
HWY_INLINE FloatVec log_gate(const GateRule& rule, FloatVec gate, FloatVec rate, FloatVec bias) {
  const FloatTag d;
  if (rule.gate_space == SLUICE_GATE_LINEAR) {
    const auto tiny = hn::Lt(gate, hn::Set(d, FLT_MIN));
    const auto safe = hn::IfThenElse(tiny, hn::Set(d, 1.0f), gate);
    return hn::IfThenElse(tiny, hn::Set(d, kSmallestGate), keep_nan(gate, hn::Log(d, safe)));
  }
  if (rule.gate_space == SLUICE_GATE_RAW) {
    return clamp_gate(hn::Neg(hn::Mul(rate, softplus(hn::Add(gate, bias)))));
  }
  if (rule.gate_space == SLUICE_GATE_RAW_BOUNDED) {
    const auto y = hn::Mul(rate, hn::Add(gate, bias));
    return clamp_gate(hn::Mul(hn::Set(d, rule.lower_bound), sigmoid(d, y)));
  }
  return clamp_gate(gate);
}

/// The same with the rule's rate and bias.
HWY_INLINE FloatVec log_gate(const GateRule& rule, FloatVec gate) {
  const FloatTag d;
  return log_gate(rule, gate, hn::Set(d, rule.decay_rate), hn::Set(d, rule.dt_bias));
}

/// g[t] and alpha[t] = exp(g[t]) for t < tokens; g = 0 without gates. Rows are padded: whole
/// vectors of at most 16 elements are read and written.
HWY_INLINE void decays(const GateRule& rule, const float* HWY_RESTRICT gate, int64_t tokens,
                       float* HWY_RESTRICT g, float* HWY_RESTRICT alpha) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < tokens; t += lanes) {
    auto log_alpha = hn::Zero(d);
    if (rule.gated) log_alpha = log_gate(rule, hn::LoadU(d, gate + t));
    hn::StoreU(log_alpha, d, g + t);
    // NUM: a linear gate is the decay itself; exp(log(alpha)) would cost it an ulp.
    const bool given = rule.gated && rule.gate_space == SLUICE_GATE_LINEAR;
    hn::StoreU(given ? hn::LoadU(d, gate + t) : exp_nonpositive(log_alpha), d, alpha + t);
  }
}

/// beta_out[t] for t < tokens, padded as in decays().
HWY_INLINE void write_strengths(const GateRule& rule, const float* HWY_RESTRICT beta,
                                int64_t tokens, float* HWY_RESTRICT beta_out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, rule.beta_factor);
  for (int64_t t = 0; t < tokens; t += lanes) {
    auto strength = hn::Set(d, 1.0f);
    if (rule.weighted) strength = hn::LoadU(d, beta + t);
    if (rule.weighted && rule.beta_space == SLUICE_BETA_LOGIT) strength = sigmoid(d, strength);
    hn::StoreU(hn::Mul(factor, strength), d, beta_out + t);
  }
}

/// sum of x[i] * y[i].
HWY_INLINE float dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), sum1);
  }
  for (; i + lanes <= count; i += lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// out = factor * x * rsqrt(sum(x^2) + eps).
HWY_INLINE void l2_normalise_row(const float* x, int64_t K, float eps, float factor, float* out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float multiplier = factor / std::sqrt(dot(x, x, K) + eps);
  const auto by = hn::Set(d, multiplier);
  int64_t i = 0;
  for (; i + lanes <= K; i += lanes) hn::StoreU(hn::Mul(by, hn::LoadU(d, x + i)), d, out + i);
  for (; i < K; ++i) out[i] = multiplier * x[i];
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_GATES_INL_H_
