// Math    u = S^T k, w = S^T q on the state before the step, then
//           delta = beta (v - alpha u),  o = alpha w + (k . q) delta,  S <- alpha S + k delta^T:
//         the recurrence of sluice.h with one read of S for both products. Linear attention: delta
//         = v.
// Roles   One call is one sequence and value head. Columns of S are independent, so the call walks
//         panels of columns; a lane is a column, and sums run over k in ascending order with fused
//         multiply-adds, so the bits depend on neither the panel width nor the state's layout.
// Memory  One token on a float32 kv state runs in place: a read sweep, then a read-modify-write
// sweep
//         out of L2. All else goes through a panel [K][columns] in L1 that stays there for all
//         tokens.
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

/// One step on kVectors vectors of columns: reads S at `from`, writes it to `to` (may be equal;
/// null: not written).
template <size_t kVectors>
HWY_INLINE void step_columns(const StepRow& row, int64_t K, const float* from, int64_t from_stride,
                             float* to, int64_t to_stride) {
  const FloatTag d;
  FloatVec u[kVectors], w[kVectors];
  SLUICE_UNROLL
  for (size_t c = 0; c < kVectors; ++c) u[c] = w[c] = hn::Zero(d);
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    const auto q = hn::Set(d, row.q[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      const auto s = hn::LoadU(d, from + i * from_stride + c * kFloatsPerVector);
      u[c] = hn::MulAdd(s, k, u[c]);
      w[c] = hn::MulAdd(s, q, w[c]);
    }
  }
  const auto alpha = hn::Set(d, row.alpha);
  const auto beta = hn::Set(d, row.beta);
  const auto kq = hn::Set(d, row.kq);
  FloatVec delta[kVectors];
  SLUICE_UNROLL
  for (size_t c = 0; c < kVectors; ++c) {
    const auto v = hn::LoadU(d, row.v + c * kFloatsPerVector);
    delta[c] = row.delta_rule ? hn::Mul(beta, hn::NegMulAdd(alpha, u[c], v)) : v;
    hn::StoreU(hn::MulAdd(alpha, w[c], hn::Mul(kq, delta[c])), d, row.o + c * kFloatsPerVector);
  }
  if (to == nullptr) return;
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      const auto s = hn::LoadU(d, from + i * from_stride + c * kFloatsPerVector);
      hn::StoreU(hn::MulAdd(k, delta[c], hn::Mul(alpha, s)), d,
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

/// Whether the state can be swept where it lies.
HWY_INLINE bool runs_in_place(const HeadSteps& steps) {
  return steps.tokens == 1 && steps.layout == SLUICE_STATE_KV && steps.initial != nullptr &&
         core::same(steps.initial_dtype, core::kFloat32) &&
         (steps.final[0] == nullptr || core::same(steps.final_dtype, core::kFloat32));
}

/// The one step of runs_in_place(); returns how many columns it did, a multiple of the lanes.
HWY_INLINE int64_t sweep_in_place(const HeadSteps& steps, float kq) {
  const float* from = static_cast<const float*>(steps.initial);
  float* to = static_cast<float*>(steps.final[0]);
  StepRow row = step_row(steps, 0, kq);
  int64_t column = 0;
  const auto advance = [&](int64_t columns) {
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
  float kq[kMaxSteps];
  for (int64_t t = 0; t < steps.tokens; ++t) {
    kq[t] = dot(steps.k + t * steps.qk_stride, steps.q + t * steps.qk_stride, steps.K);
  }
  int64_t column = 0;
  if (runs_in_place(steps)) column = sweep_in_place(steps, kq[0]);
  for (; column < steps.V; column += kStepColumns) {
    step_panel(steps, kq, column, steps.scratch);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
