// Computes rows of chunk_backward: weighted sums of them, and gradients of q and k on their way to
// memory.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_BACKWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_BACKWARD_ROWS_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_BACKWARD_ROWS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_BACKWARD_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_backward.hpp"
#include "cpu/kernels/stage_tiles-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to[c] (set or +=) factor * from[c] for c < count, a multiple of the lanes.
template <bool kAdd>
HWY_INLINE void weigh_row(float factor, const float* from, int64_t count, float* to) {
  const FloatTag d;
  const auto by = hn::Set(d, factor);
  for (int64_t c = 0; c < count; c += static_cast<int64_t>(kTileLanes)) {
    const auto value = hn::Mul(by, hn::LoadU(d, from + c));
    hn::StoreU(kAdd ? hn::Add(hn::LoadU(d, to + c), value) : value, d, to + c);
  }
}

/// sums[c] += x[c] y[c]; returns the sum of them.
HWY_INLINE float multiply_rows(const float* x, const float* y, int64_t count, float* sums) {
  const FloatTag d;
  auto total = hn::Zero(d);
  for (int64_t c = 0; c < count; c += static_cast<int64_t>(kTileLanes)) {
    const auto value = hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, y + c));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + c), value), d, sums + c);
    total = hn::Add(total, value);
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// d g / d gate and d g / d A_log; zero where the clamp acts. `g`: clamped.
struct GateSlopes {
  float gate, A_log;
};
HWY_INLINE GateSlopes gate_slopes(const GateRule& rule, float gate, float g) {
  if (g == kSmallestGate && !(rule.gate_space == SLUICE_GATE_LOG && gate == g)) return {};
  if (rule.gate_space == SLUICE_GATE_LINEAR) return {1.0f / gate, 0.0f};
  if (rule.gate_space == SLUICE_GATE_LOG) return {1.0f, 0.0f};
  const float x = gate + rule.dt_bias;
  if (rule.gate_space == SLUICE_GATE_RAW_BOUNDED) {
    const float y = rule.decay_rate * x, slope = g / (1.0f + std::exp(y));
    return {slope * rule.decay_rate, slope * y};
  }
  return {-rule.decay_rate * (x > 20.0f ? 1.0f : 1.0f / (1.0f + std::exp(-x))), g};
}

/// d beta / d beta as given.
HWY_INLINE float strength_slope(const GateRule& rule, float given) {
  if (rule.beta_space == SLUICE_BETA_VALUE) return rule.beta_factor;
  const float s = 1.0f / (1.0f + std::exp(-given));
  return rule.beta_factor * s * (1.0f - s);
}

/// One row of dq or dk, through the l2 norm of `raw` where there is one, to memory.
HWY_INLINE void store_key_gradient(const core::DeltaRuleProblem& p, const core::Tensor& raw,
                                   const core::Tensor& to, int64_t batch, int64_t token,
                                   int64_t key_head, float* gradient) {
  if (p.qk_norm == SLUICE_QK_NORM_L2) {
    float x[kMaxHeadDim];
    read_dense(core::address(raw, batch, token, key_head, 0), raw.dtype, p.K, x);
    const float factor = 1.0f / std::sqrt(dot(x, x, p.K) + static_cast<float>(p.l2norm_eps));
    const float along = dot(x, gradient, p.K) * factor * factor;
    for (int64_t i = 0; i < p.K; ++i) gradient[i] = factor * (gradient[i] - x[i] * along);
  }
  write_dense(gradient, p.K, core::address(to, batch, token, key_head, 0), to.dtype);
}

/// Rows of dq and dk as sums over a key head's value heads, in their order.
HWY_INLINE void key_rows(const KeyRowsItem& item) {
  const core::DeltaRuleProblem& p = item.problem.forward;
  const struct {
    const core::Tensor &raw, &to;
    const float* parts;
  } both[2] = {{p.q, item.problem.dq, item.partials.dq}, {p.k, item.problem.dk, item.partials.dk}};
  const bool block = p.head_map == SLUICE_HEAD_MAP_BLOCK;
  float sum[kMaxHeadDim];
  for (const auto& [raw, to, parts] : both) {
    for (int64_t t = item.begin; t < item.end && core::present(to); ++t) {
      const float* const row = parts + (item.batch * p.rows.T + t) * p.HV * p.K;
      std::fill(sum, sum + p.K, 0.0f);
      for (int64_t i = 0; i < p.r; ++i) {
        const int64_t head = block ? item.key_head * p.r + i : item.key_head + i * p.H;
        for (int64_t c = 0; c < p.K; ++c) sum[c] += row[head * p.K + c];
      }
      store_key_gradient(p, raw, to, item.batch, t, item.key_head, sum);
    }
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_BACKWARD_ROWS_INL_H_
