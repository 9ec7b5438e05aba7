// Math    u = S^T k, w = S^T q on the state before the step, then
//           delta = beta (v - alpha u),  o = alpha w + (k . q) delta,  S <- alpha S + k delta^T:
//         the recurrence of sluice.h with one read of S for both products. Linear attention: delta
//         = v.
// Roles   One call is one sequence and value head. Columns of S are independent, so the call walks
//         panels of columns; a lane is a column, and sums run over k in ascending order with fused
//         multiply-adds, so the bits depend on neither the panel width nor the state's layout.
// Memory  One token works on the state where it lies: a sweep that reads, then one that reads again
//         out of L1 or L2 and writes. For vk layout the first sweep transposes in registers, the
//         second is elementwise. Several tokens, float16 on machines without conversions, and
//         columns left over go through a panel [K][columns] that stays in L1 for all tokens.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#undef SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#else
#define SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kFloatsPerVector = HWY_LANES(float);
constexpr int64_t kLanes = static_cast<int64_t>(kFloatsPerVector);
/// Vectors per panel: two products of four columns each fill the multiply-add pipes (latency 4).
constexpr size_t kStepVectors = HWY_TARGET == HWY_AVX3 ? 2 : 4;
/// Vectors of a sweep in place: as many as the registers hold, for long contiguous rows.
constexpr size_t kSweepVectors = HWY_TARGET == HWY_AVX3 ? 8 : 4;

/// Vectors of columns that a sweep over a vk state transposes at once: their sums hide the latency.
constexpr size_t kTurnVectors = 2;
constexpr int64_t kTurnColumns = static_cast<int64_t>(kTurnVectors) * kLanes;
constexpr int64_t kStepColumns = static_cast<int64_t>(kStepVectors) * kLanes;
constexpr int64_t kSweepColumns = static_cast<int64_t>(kSweepVectors) * kLanes;

/// What one step does to one run of columns.
struct StepRow {
  const float* q;
  const float* k;
  const float* v;  ///< at the run's first column
  float* o;        ///< at the run's first column
  float alpha, beta, kq;
  bool delta_rule;
};

/// delta and o of kVectors vectors of columns, from u = S^T k and w = S^T q.
template <size_t kVectors>
HWY_INLINE void finish_columns(const StepRow& row, const FloatVec (&u)[kVectors],
                               const FloatVec (&w)[kVectors], FloatVec (&delta)[kVectors]) {
  const FloatTag d;
  const auto alpha = hn::Set(d, row.alpha);
  const auto beta = hn::Set(d, row.beta);
  const auto kq = hn::Set(d, row.kq);
  SLUICE_UNROLL
  for (size_t c = 0; c < kVectors; ++c) {
    const auto v = hn::LoadU(d, row.v + c * kFloatsPerVector);
    delta[c] = row.delta_rule ? hn::Mul(beta, hn::NegMulAdd(alpha, u[c], v)) : v;
    hn::StoreU(hn::MulAdd(alpha, w[c], hn::Mul(kq, delta[c])), d, row.o + c * kFloatsPerVector);
  }
}

/// One step on kVectors vectors of columns: reads S [K][..] at `from`, writes it to `to` (may be
/// equal; null: not written). Elements as in load_vector().
template <size_t kVectors, class From, class To>
HWY_INLINE void step_columns(const StepRow& row, int64_t K, const From* from, int64_t from_stride,
                             To* to, int64_t to_stride) {
  const FloatTag d;
  FloatVec u[kVectors], w[kVectors], delta[kVectors];
  SLUICE_UNROLL
  for (size_t c = 0; c < kVectors; ++c) u[c] = w[c] = hn::Zero(d);
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    const auto q = hn::Set(d, row.q[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      const auto s = load_vector(from + i * from_stride + c * kFloatsPerVector);
      u[c] = hn::MulAdd(s, k, u[c]);
      w[c] = hn::MulAdd(s, q, w[c]);
    }
  }
  finish_columns(row, u, w, delta);
  if (to == nullptr) return;
  const auto alpha = hn::Set(d, row.alpha);
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      const auto s = load_vector(from + i * from_stride + c * kFloatsPerVector);
      store_vector(hn::MulAdd(k, delta[c], hn::Mul(alpha, s)),
                   to + i * to_stride + c * kFloatsPerVector);
    }
  }
}

HWY_INLINE StepRow step_row(const HeadSteps& steps, int64_t t, float kq) {
  return {steps.q + t * steps.qk_stride,
          steps.k + t * steps.qk_stride,
          steps.v + t * steps.v_stride,
          steps.o + t * steps.o_stride,
          steps.alpha[t],
          steps.beta[t],
          kq,
          steps.rule == SLUICE_RULE_GATED_DELTA};
}

/// The one step of a kv state in place; returns how many columns it did, a multiple of the lanes.
template <class From, class To>
HWY_INLINE int64_t sweep_kv(const HeadSteps& steps, float kq, const From* from, To* to) {
  StepRow row = step_row(steps, 0, kq);
  int64_t column = 0;
  const auto advance = [&](int64_t columns) HWY_ATTR {
    column += columns;
    from += columns;
    if (to != nullptr) to += columns;
    row.v += columns;
    row.o += columns;
  };
  while (column + kSweepColumns <= steps.V) {
    step_columns<kSweepVectors>(row, steps.K, from, steps.V, to, steps.V);
    advance(kSweepColumns);
  }
  while (column + kLanes <= steps.V) {
    step_columns<1>(row, steps.K, from, steps.V, to, steps.V);
    advance(kLanes);
  }
  return column;
}

#if HWY_TARGET != HWY_SCALAR
/// u and w of kTurnVectors vectors of columns from rows [column][K] of float32; K % 4 == 0.
HWY_INLINE void turn_products(const StepRow& row, int64_t K, const float* rows,
                              FloatVec (&u)[kTurnVectors], FloatVec (&w)[kTurnVectors]) {
  const FloatTag d;
  SLUICE_UNROLL
  for (size_t c = 0; c < kTurnVectors; ++c) u[c] = w[c] = hn::Zero(d);
  for (int64_t i = 0; i < K; i += 4) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kTurnVectors; ++c) {
      FloatVec s[4];
      load_transposed(rows + static_cast<int64_t>(c) * kLanes * K + i, K, s);
      SLUICE_UNROLL
      for (size_t j = 0; j < 4; ++j) {
        u[c] = hn::MulAdd(s[j], hn::Set(d, row.k[i + static_cast<int64_t>(j)]), u[c]);
        w[c] = hn::MulAdd(s[j], hn::Set(d, row.q[i + static_cast<int64_t>(j)]), w[c]);
      }
    }
  }
}

/// The one step of a vk state in place; returns how many columns it did. `scratch` holds
/// kTurnColumns rows of K. Needs K to be a multiple of the lanes.
template <class From, class To>
HWY_INLINE int64_t sweep_vk(const HeadSteps& steps, float kq, const From* from, To* to) {
  const FloatTag d;
  const int64_t K = steps.K;
  int64_t column = 0;
  const auto alpha = hn::Set(d, steps.alpha[0]);
  StepRow row = step_row(steps, 0, kq);
  for (; column + kTurnColumns <= steps.V; column += kTurnColumns) {
    // WHY the copy: transposing reads 16 bytes at a time from many rows, which no hardware
    // prefetcher follows out of DRAM. PERF 305 -> 260 us (32 heads, cold, Zen 4, 2026-11).
    copy_rows(from + column * K, K, kTurnColumns, K, steps.scratch, K);
    const float* const rows = steps.scratch;
    FloatVec u[kTurnVectors], w[kTurnVectors], delta[kTurnVectors];
    turn_products(row, K, rows, u, w);
    finish_columns(row, u, w, delta);
    row.v += kTurnColumns;
    row.o += kTurnColumns;
    if (to == nullptr) continue;
    HWY_ALIGN float deltas[kTurnColumns];
    for (size_t c = 0; c < kTurnVectors; ++c) {
      hn::Store(delta[c], d, deltas + c * kFloatsPerVector);
    }
    for (int64_t c = 0; c < kTurnColumns; ++c) {
      const auto factor = hn::Set(d, deltas[c]);
      To* const out = to + (column + c) * K;
      for (int64_t i = 0; i < K; i += kLanes) {
        const auto s = hn::LoadU(d, rows + c * K + i);
        store_vector(hn::MulAdd(hn::LoadU(d, row.k + i), factor, hn::Mul(alpha, s)), out + i);
      }
    }
  }
  return column;
}
#else
/// One lane has nothing to transpose: panels do.
template <class From, class To>
HWY_INLINE int64_t sweep_vk(const HeadSteps& /*steps*/, float /*kq*/, const From* /*from*/,
                            To* /*to*/) {
  return 0;
}
#endif

/// The one step in place, between element types found at run time; returns the columns done.
HWY_INLINE int64_t sweep_in_place(const HeadSteps& steps, float kq) {
  const bool kv = steps.layout == SLUICE_STATE_KV;
  if (steps.tokens != 1 || steps.initial == nullptr || (!kv && steps.K % kLanes != 0)) return 0;
  void* const final = steps.final[0];
  int64_t done = 0;
  with_elements(steps.initial, steps.initial_dtype, [&](const auto* from) HWY_ATTR {
    const sluice_dtype final_dtype = final == nullptr ? steps.initial_dtype : steps.final_dtype;
    with_elements(final, final_dtype, [&](auto* to) HWY_ATTR {
      done = kv ? sweep_kv(steps, kq, from, to) : sweep_vk(steps, kq, from, to);
    });
  });
  return done;
}

/// All steps on the panel of columns from `first`.
HWY_INLINE void step_panel(const HeadSteps& steps, const float* kq, int64_t first, float* panel) {
  const PanelColumns at{first, std::min(kStepColumns, steps.V - first), kStepColumns};
  load_panel(steps.initial, steps.initial_dtype, steps.layout, steps.K, steps.V, at, panel);
  if (steps.tokens == 0 && steps.final[0] != nullptr) {
    store_panel(panel, steps.final_dtype, steps.layout, steps.K, steps.V, at, steps.final[0]);
  }
  HWY_ALIGN float v[kStepColumns] = {};
  HWY_ALIGN float o[kStepColumns];
  for (int64_t t = 0; t < steps.tokens; ++t) {
    StepRow row = step_row(steps, t, kq[t]);
    std::copy_n(row.v + first, at.columns, v);
    float* const out = row.o + first;
    row.v = v;
    row.o = o;
    step_columns<kStepVectors>(row, steps.K, panel, kStepColumns, panel, kStepColumns);
    std::copy_n(o, at.columns, out);
    if (steps.final[t] == nullptr) continue;
    store_panel(panel, steps.final_dtype, steps.layout, steps.K, steps.V, at, steps.final[t]);
  }
}

/// See run_head_steps().
void head_steps(const HeadSteps& steps) {
  float kq[kMaxSteps] = {};
  for (int64_t t = 0; t < steps.tokens; ++t) {
    kq[t] = dot(steps.k + t * steps.qk_stride, steps.q + t * steps.qk_stride, steps.K);
  }
  for (int64_t column = sweep_in_place(steps, kq[0]); column < steps.V; column += kStepColumns) {
    step_panel(steps, kq, column, steps.scratch);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
