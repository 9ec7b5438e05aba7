// Computes rows of chunk_backward: weighted sums of them, and gradients of q and k on their way to
// memory; and what heads have in common whatever the gates.
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
#include "cpu/kernels/state_panels-inl.h"
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

/// What the gradients of a sequence and a value head have in common, whatever the gates.
template <class Item>
class BackwardHead {
 public:
  explicit BackwardHead(const Item& item) noexcept
      : item_(item),
        b_(item.problem),
        p_(item.problem.forward),
        l_(item.layout),
        rule_(gate_rule(item.problem.forward, item.head)),
        delta_(item.problem.forward.rule == SLUICE_RULE_GATED_DELTA) {}

 protected:
  float* at(int64_t offset) const noexcept { return item_.scratch + offset; }
  int64_t place() const noexcept { return item_.n * p_.HV + item_.head; }
  sluice_state_layout layout() const noexcept {
    return static_cast<sluice_state_layout>(p_.state.layout);
  }
  PanelColumns panel() const noexcept { return {0, p_.V, l_.V_stride}; }

  /// S <- the head's state, or zeros; rows past K, which the last tile reads, are zeros.
  void load_state(const core::Tensor& view, float* S) const noexcept {
    const void* const from =
        core::present(view) ? core::address(view, item_.n, item_.head, 0, 0) : nullptr;
    load_panel(from, view.dtype, layout(), p_.K, p_.V, panel(), S);
    std::fill(S + p_.K * l_.V_stride, S + l_.state_size, 0.0f);
  }
  void store_dinitial() const noexcept {
    if (!core::present(b_.dinitial)) return;
    store_panel(at(l_.D), b_.dinitial.dtype, layout(), p_.K, p_.V, panel(),
                core::address(b_.dinitial, item_.n, item_.head, 0, 0));
  }

  /// Rows of dq and dk for `count` tokens from `first` of a batch entry, `stride` numbers apart: to
  /// memory, or to the parts that key_rows() adds up.
  void store_keys(int64_t batch, int64_t first, int64_t count, int64_t stride) const noexcept {
    const struct {
      const core::Tensor &raw, &to;
      float *rows, *parts;
    } both[2] = {{p_.q, b_.dq, at(l_.dq), item_.partials.dq},
                 {p_.k, b_.dk, at(l_.dk), item_.partials.dk}};
    for (const auto& [raw, to, rows, parts] : both) {
      for (int64_t i = 0; i < count && core::present(to); ++i) {
        float* const row = rows + i * stride;
        if (parts == nullptr) {
          store_key_gradient(p_, raw, to, batch, first + i, p_.key_head(item_.head), row);
        } else {
          const int64_t token = batch * p_.rows.T + first + i;
          std::copy_n(row, p_.K, parts + (token * p_.HV + item_.head) * p_.K);
        }
      }
    }
  }

  const Item& item_;
  const core::ChunkBackwardProblem& b_;
  const core::DeltaRuleProblem& p_;
  decltype(Item::layout) l_;
  const GateRule rule_;
  const bool delta_;
};

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
