// Runs the steps of one sequence and value head: where the state lies, as step_sweeps-inl.h and
// step_tokens-inl.h do it, or through panels.
// Roles   Columns of S are independent, so a call walks runs of columns.
// Memory  One token, and several on a kv state, work on the state in place. Several tokens on a vk
//         state, states of two dtypes, no initial state, float16 on machines without conversions,
//         and columns left over go through a panel [K][columns] that stays in L1 for all tokens,
//         with the same sums in the same order.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#undef SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#else
#define SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/isa.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "cpu/kernels/step_sweeps-inl.h"
#include "cpu/kernels/step_tokens-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vectors per panel: two products of four columns each fill the multiply-add pipes (latency 4).
constexpr size_t kStepVectors = HWY_TARGET == HWY_AVX3 ? 2 : 4;
constexpr int64_t kStepColumns = static_cast<int64_t>(kStepVectors) * kLanes;

template <class Element>
HWY_INLINE int64_t sweep_elements(const HeadSteps& steps, const float* kq, const Element* from) {
  if (steps.tokens > 1) return sweep_tokens(steps, kq, from);
  const StepRow row = step_row(steps, 0, kq[0]);
  auto* const to = static_cast<Element*>(steps.final[0]);
  return steps.layout == SLUICE_STATE_KV
             ? sweep_kv(row, steps.K, steps.V, from, to, steps.next)
             : sweep_vk(row, steps.K, steps.V, from, to, steps.next, steps.scratch);
}

/// The steps on the state where it lies; returns the columns done.
HWY_INLINE int64_t sweep_in_place(const HeadSteps& steps, const float* kq) {
  if (steps.tokens == 0 || steps.initial == nullptr) return 0;
  if (steps.layout == SLUICE_STATE_VK && (steps.tokens > 1 || steps.K % kLanes != 0)) return 0;
  const bool written = std::any_of(steps.final, steps.final + steps.tokens,
                                   [](const void* state) { return state != nullptr; });
  if (written && !core::same(steps.initial_dtype, steps.final_dtype)) return 0;
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
  if (core::same(steps.initial_dtype, core::kBFloat16) && isa_has_bfloat16_dots()) {
    return sweep_elements(steps, kq, static_cast<const RoundedByMachine*>(steps.initial));
  }
#endif
  int64_t done = 0;
  with_elements(steps.initial, steps.initial_dtype,
                [&](const auto* from) HWY_ATTR { done = sweep_elements(steps, kq, from); });
  return done;
}

/// A panel [K][kStepColumns] between two steps: what the last one writes may still be owed.
struct SteppedPanel {
  float* values = nullptr;
  int64_t K = 0;
  const float* k = nullptr;  ///< of the step that is owed; null = none
  HWY_ALIGN DecayRow decays;
  const float* decay = nullptr;  ///< of the step that is owed: of each row
  /// WHY floats: a member of vector type would be initialised in a constructor that is compiled for
  /// no instruction set, which GCC refuses on Arm.
  HWY_ALIGN float delta[kStepVectors * kFloatsPerVector] = {};
  const std::byte* ahead = nullptr;  ///< what the next pass asks for meanwhile; null = nothing
  int64_t ahead_per_row = 0;         ///< bytes

  /// The update owed, if any, and u = S^T next_k, w = S^T next_q, if asked for, in one pass.
  template <bool kUpdate, bool kProducts>
  HWY_INLINE void pass(const float* HWY_RESTRICT next_k, const float* HWY_RESTRICT next_q,
                       FloatVec (&u)[kStepVectors], FloatVec (&w)[kStepVectors]) {
    const FloatTag d;
    // WHY copies: to the compiler, stores to the panel might change members.
    const float* HWY_RESTRICT const owed_k = k;
    const float* HWY_RESTRICT const owed_decay = decay;
    float* HWY_RESTRICT at = values;
    FloatVec owed[kStepVectors];
    SLUICE_UNROLL
    for (size_t c = 0; c < kStepVectors; ++c) {
      u[c] = w[c] = hn::Zero(d);
      owed[c] = hn::Load(d, delta + c * kFloatsPerVector);
    }
    const std::byte* asked = ahead;
    const int64_t step = asked == nullptr ? 0 : ahead_per_row;
    ahead = nullptr;
    for (int64_t i = 0, rows = K; i < rows; ++i, at += kStepColumns) {
      for (int64_t b = 0; b < step; b += static_cast<int64_t>(kLineBytes)) prefetch_line(asked + b);
      asked += step;
      SLUICE_UNROLL
      for (size_t c = 0; c < kStepVectors; ++c) {
        auto s = hn::Load(d, at + c * kFloatsPerVector);
        if constexpr (kUpdate) {
          const auto decayed = hn::Mul(hn::Set(d, owed_decay[i]), s);
          s = hn::MulAdd(hn::Set(d, owed_k[i]), owed[c], decayed);
          hn::Store(s, d, at + c * kFloatsPerVector);
        }
        if constexpr (kProducts) {
          u[c] = hn::MulAdd(s, hn::Set(d, next_k[i]), u[c]);
          w[c] = hn::MulAdd(s, hn::Set(d, next_q[i]), w[c]);
        }
      }
    }
  }

  /// Writes what is owed.
  HWY_INLINE void settle() {
    FloatVec u[kStepVectors], w[kStepVectors];
    if (k != nullptr) pass<true, false>(nullptr, nullptr, u, w);
    k = nullptr;
  }

  /// One step; its update is owed afterwards.
  HWY_INLINE void step(const StepRow& row) {
    const FloatTag d;
    FloatVec u[kStepVectors], w[kStepVectors];
    k != nullptr ? pass<true, true>(row.k, row.q, u, w) : pass<false, true>(row.k, row.q, u, w);
    SLUICE_UNROLL
    for (size_t c = 0; c < kStepVectors; ++c) {
      const auto v = hn::LoadU(d, row.v + c * kFloatsPerVector);
      hn::Store(finish_vector(row, v, u[c], w[c]), d, delta + c * kFloatsPerVector);
      hn::StoreU(w[c], d, row.o + c * kFloatsPerVector);
    }
    k = row.written_k;
    StepRow owed = row;
    take_decay(K, decays, &owed);
    decay = owed.decay;
  }
};

/// Rows of a vk state, of this head or the next one, that the panel kGroupsAhead on will read; null
/// = nothing to ask for. PERF two tokens, cold: float32 422 -> 373 us, float16 340 -> 333 us, least
/// times 403 -> 298 and 336 -> 254 us (32 heads, 128 x 128, Zen 4, 2026-11).
HWY_INLINE const std::byte* rows_ahead(const HeadSteps& steps, int64_t first) {
  if (steps.layout != SLUICE_STATE_VK || steps.initial == nullptr) return nullptr;
  const int64_t later = first + kGroupsAhead * kStepColumns, panels = steps.V / kStepColumns;
  const void* state = steps.initial;
  int64_t column = later;
  if (later + kStepColumns > steps.V) {
    if (steps.next == nullptr || panels == 0) return nullptr;
    state = steps.next;
    column = later / kStepColumns % panels * kStepColumns;
  }
  return static_cast<const std::byte*>(element_at(state, steps.initial_dtype, column * steps.K));
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
  const bool whole = at.columns == kStepColumns;
  SteppedPanel stepped;
  stepped.values = panel;
  stepped.K = steps.K;
  stepped.ahead = rows_ahead(steps, first);
  stepped.ahead_per_row = kStepColumns * core::element_size(steps.initial_dtype);
  for (int64_t t = 0; t < steps.tokens; ++t) {
    StepRow row = step_row(steps, t, kq[t]);
    float* const out = row.o + first;
    row.v += first;
    row.o = out;
    if (!whole) {
      std::copy_n(row.v, at.columns, v);
      row.v = v;
      row.o = o;
    }
    stepped.step(row);
    if (!whole) std::copy_n(o, at.columns, out);
    if (steps.final[t] == nullptr) continue;
    stepped.settle();
    store_panel(panel, steps.final_dtype, steps.layout, steps.K, steps.V, at, steps.final[t]);
  }
}

/// See run_head_steps().
void head_steps(const HeadSteps& steps) {
  float kq[kMaxSteps] = {};
  for (int64_t t = 0; t < steps.tokens; ++t) {
    kq[t] = dot(steps.k + t * steps.qk_stride, steps.q + t * steps.qk_stride, steps.K);
  }
  for (int64_t column = sweep_in_place(steps, kq); column < steps.V; column += kStepColumns) {
    step_panel(steps, kq, column, steps.scratch);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_HEAD_STEPS_INL_H_
