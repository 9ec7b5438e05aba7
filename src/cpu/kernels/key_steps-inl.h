// Runs steps with key-wise gates on one panel of columns of the state.
// Math    One panel of columns of S and key-wise decays: S <- diag(alpha) S, u = S^T k, w = S^T q
//         in one pass, then delta = beta (v - u), o = w + (k . q) delta, and S <- S + k delta^T
//         with the next token's pass. Linear attention: delta = v.
// Order   A lane is a column of S; sums run over k in ascending order with fused multiply-adds.
// Memory  A panel [K][columns] stays in L1 for all tokens, whatever the state's layout and dtype.
// Floor   Two passes a token in place of scalar gates' sweeps in place: docs/kernels/cpu_decode.md
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_KEY_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_KEY_STEPS_INL_H_
#undef SLUICE_CPU_KERNELS_KEY_STEPS_INL_H_
#else
#define SLUICE_CPU_KERNELS_KEY_STEPS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/key_steps.hpp"
#include "cpu/kernels/state_panels-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kKeyLanes = HWY_LANES(float);
/// Vectors of a panel.
constexpr size_t kKeyVectors = HWY_TARGET == HWY_AVX3 ? 2 : 4;
constexpr int64_t kKeyColumns = static_cast<int64_t>(kKeyVectors * kKeyLanes);

/// A panel between two tokens: the write of the last one is owed.
struct KeyPanel {
  float* values = nullptr;
  int64_t K = 0;
  const float* k = nullptr;  ///< of the token whose write is owed; null = none
  HWY_ALIGN float delta[kKeyVectors * kKeyLanes] = {};

  /// The write owed; then the decays, and u = S^T next_k and w = S^T next_q.
  template <bool kOwed>
  HWY_INLINE void pass(const float* HWY_RESTRICT alpha, const float* HWY_RESTRICT next_k,
                       const float* HWY_RESTRICT next_q, FloatVec (&u)[kKeyVectors],
                       FloatVec (&w)[kKeyVectors]) {
    const FloatTag d;
    const float* HWY_RESTRICT const owed_k = k;
    float* HWY_RESTRICT at = values;
    FloatVec owed[kKeyVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kKeyVectors; ++c) {
      u[c] = w[c] = hn::Zero(d);
      owed[c] = hn::Load(d, delta + c * kKeyLanes);
    }
    for (int64_t i = 0, rows = K; i < rows; ++i, at += kKeyColumns) {
      const auto decay = hn::Set(d, alpha[i]);
      SLUICE_UNROLL
      for (size_t c = 0; c < kKeyVectors; ++c) {
        auto s = hn::LoadU(d, at + c * kKeyLanes);
        if constexpr (kOwed) s = hn::MulAdd(hn::Set(d, owed_k[i]), owed[c], s);
        s = hn::Mul(decay, s);
        hn::StoreU(s, d, at + c * kKeyLanes);
        u[c] = hn::MulAdd(s, hn::Set(d, next_k[i]), u[c]);
        w[c] = hn::MulAdd(s, hn::Set(d, next_q[i]), w[c]);
      }
    }
  }

  HWY_INLINE void settle() {
    const FloatTag d;
    if (k == nullptr) return;
    float* HWY_RESTRICT at = values;
    for (int64_t i = 0; i < K; ++i, at += kKeyColumns) {
      SLUICE_UNROLL
      for (size_t c = 0; c < kKeyVectors; ++c) {
        const auto s = hn::LoadU(d, at + c * kKeyLanes);
        const auto written = hn::MulAdd(hn::Set(d, k[i]), hn::Load(d, delta + c * kKeyLanes), s);
        hn::StoreU(written, d, at + c * kKeyLanes);
      }
    }
    k = nullptr;
  }

  /// Token t on the panel's columns, whose v and o these are.
  HWY_INLINE void step(const KeySteps& key, int64_t t, float kq, const float* v, float* o) {
    const FloatTag d;
    const HeadSteps& steps = key.steps;
    const float* const next_k = steps.k + t * steps.qk_stride;
    const float* const next_q = steps.q + t * steps.qk_stride;
    const float* const alpha = key.alpha + t * key.stride;
    FloatVec u[kKeyVectors], w[kKeyVectors];
    k != nullptr ? pass<true>(alpha, next_k, next_q, u, w)
                 : pass<false>(alpha, next_k, next_q, u, w);
    const auto beta = hn::Set(d, steps.beta[t]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kKeyVectors; ++c) {
      auto error = hn::LoadU(d, v + c * kKeyLanes);
      if (steps.rule == SLUICE_RULE_GATED_DELTA) error = hn::Mul(beta, hn::Sub(error, u[c]));
      hn::Store(error, d, delta + c * kKeyLanes);
      hn::StoreU(hn::MulAdd(hn::Set(d, kq), error, w[c]), d, o + c * kKeyLanes);
    }
    k = next_k;
  }
};

/// All tokens on the panel of columns from `first`.
HWY_INLINE void step_key_panel(const KeySteps& key, const float* kq, int64_t first) {
  const HeadSteps& steps = key.steps;
  const PanelColumns at{first, std::min(kKeyColumns, steps.V - first), kKeyColumns};
  KeyPanel panel;
  panel.values = steps.scratch;
  panel.K = steps.K;
  load_panel(steps.initial, steps.initial_dtype, steps.layout, steps.K, steps.V, at, panel.values);
  const auto store = [&](void* to) HWY_ATTR {
    if (to == nullptr) return;
    panel.settle();
    store_panel(panel.values, steps.final_dtype, steps.layout, steps.K, steps.V, at, to);
  };
  if (steps.tokens == 0) return store(steps.final[0]);
  HWY_ALIGN float v[kKeyColumns] = {};
  HWY_ALIGN float o[kKeyColumns];
  for (int64_t t = 0; t < steps.tokens; ++t) {
    std::copy_n(steps.v + t * steps.v_stride + first, at.columns, v);
    panel.step(key, t, kq[t], v, o);
    std::copy_n(o, at.columns, steps.o + t * steps.o_stride + first);
    store(steps.final[t]);
  }
}

/// See run_key_steps().
void key_steps(const KeySteps& key) {
  const HeadSteps& steps = key.steps;
  float kq[kMaxSteps] = {};
  for (int64_t t = 0; t < steps.tokens; ++t) {
    kq[t] = dot(steps.k + t * steps.qk_stride, steps.q + t * steps.qk_stride, steps.K);
  }
  for (int64_t column = 0; column < steps.V; column += kKeyColumns) {
    step_key_panel(key, kq, column);
  }
}

/// alpha[0, K) from the gates that it holds; see load_key_decays().
void key_decays(const GateRule& rule, int64_t K, float* alpha) {
  const FloatTag d;
  if (rule.gate_space == SLUICE_GATE_LINEAR) return;
  for (int64_t i = 0; i < K; i += static_cast<int64_t>(kKeyLanes)) {
    hn::StoreU(exp_nonpositive(log_gate(rule, hn::LoadU(d, alpha + i))), d, alpha + i);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_KEY_STEPS_INL_H_
