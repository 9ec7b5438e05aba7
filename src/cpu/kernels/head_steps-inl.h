// The steps of one sequence and value head: where the state lies, as step_sweeps-inl.h does it, or
// through panels.
// Roles   Columns of S are independent, so a call walks runs of columns.
// Memory  One token works on the state in place. Several tokens, states of two dtypes, float16 on
//         machines without conversions, and columns left over go through a panel [K][columns] that
//         stays in L1 for all tokens, with the same sums in the same order.
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
#include "cpu/kernels/step_sweeps-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vectors per panel: two products of four columns each fill the multiply-add pipes (latency 4).
constexpr size_t kStepVectors = HWY_TARGET == HWY_AVX3 ? 2 : 4;
constexpr int64_t kStepColumns = static_cast<int64_t>(kStepVectors) * kLanes;

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

/// The one step in place; returns the columns done.
HWY_INLINE int64_t sweep_in_place(const HeadSteps& steps, float kq) {
  const bool kv = steps.layout == SLUICE_STATE_KV;
  void* const final = steps.final[0];
  if (steps.tokens != 1 || steps.initial == nullptr || (!kv && steps.K % kLanes != 0)) return 0;
  if (final != nullptr && !core::same(steps.initial_dtype, steps.final_dtype)) return 0;
  const StepRow row = step_row(steps, 0, kq);
  int64_t done = 0;
  with_elements(steps.initial, steps.initial_dtype, [&](const auto* from) HWY_ATTR {
    auto* const to =
        static_cast<std::remove_const_t<std::remove_pointer_t<decltype(from)>>*>(final);
    done = kv ? sweep_kv(row, steps.K, steps.V, from, to, steps.next)
              : sweep_vk(row, steps.K, steps.V, from, to, steps.next, steps.scratch);
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
    step_columns<kStepVectors / 2>(row, steps.K, panel, panel, kStepColumns, nullptr);
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
