// Runs several tokens on one head's [K,V] state, one sweep a token.
// Math    Several tokens on one head's kv state: the update of each token and the products of the
//         next one, u = S^T k and w = S^T q, in one sweep over whole rows; the first products and
//         the last update are step_sweeps-inl.h's. T tokens are T + 1 sweeps and, out of memory,
//         one read and one write of the state.
// Order   As there: the bits are those of T calls of one token.
// Memory  The state between two tokens is float32 and stays in L2: in the place of the next state
//         that is written, if that is float32, else in the scratch. 16-bit states keep
//         load_pair()'s order of columns there.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STEP_TOKENS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STEP_TOKENS_INL_H_
#undef SLUICE_CPU_KERNELS_STEP_TOKENS_INL_H_
#else
#define SLUICE_CPU_KERNELS_STEP_TOKENS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/step_sweeps-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE StepRow step_row(const HeadSteps& steps, int64_t t, float kq) {
  const float* const k = steps.k + t * steps.qk_stride;
  const bool key_wise = steps.decay != nullptr;
  const int64_t row = t * steps.decay_stride;
  return {key_wise ? steps.decayed_q + row : steps.q + t * steps.qk_stride,
          key_wise ? steps.decayed_k + row : k,
          k,
          key_wise ? steps.decay + row : nullptr,
          steps.v + t * steps.v_stride,
          steps.o + t * steps.o_stride,
          key_wise ? 1.0f : steps.alpha[t],
          steps.beta[t],
          kq,
          steps.rule == SLUICE_RULE_GATED_DELTA};
}

/// Sweeps between two tokens, the last ones, that ask for as much of the next state as an update
/// does: a quarter each of a float32 state, and the last update for another; one for all of a
/// 16-bit state, and the last update for nothing. PERF float32, two tokens 166 -> 155 us, four 243
/// -> 209 us, halves: level; float16, two tokens 166 -> 146 us (32 heads, 128 x 128, cold, Zen 4,
/// 2026-11).
template <class Element>
constexpr int64_t kSweepsThatAsk = sizeof(Element) == sizeof(float) ? 3 : 1;

/// Where a sweep between two tokens reads the state and where it leaves it.
template <class From, class Element>
struct Passage {
  const From* from;
  float* to;
  Element* rounded;        ///< the same once more in the elements of the states; or null
  const std::byte* ahead;  ///< a part of the next state, to be asked for; or null
};

/// One update and the products of the token after it, on some rows of S and 2 kPairs vectors of
/// columns: to = diag(decay) from + k delta^T, u += to^T next_k, w += to^T next_q.
template <size_t kPairs, class From, class Element>
HWY_INLINE void advance_columns(const StepRow& row, const StepRow& next, int64_t first,
                                int64_t rows, int64_t stride, const float* delta_row,
                                Passage<From, Element> at, float* u_sums, float* w_sums) {
  const FloatTag d;
  FloatVec delta[2 * kPairs], u[2 * kPairs], w[2 * kPairs];
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) {
    delta[c] = hn::Load(d, delta_row + c * kFloatsPerVector);
    u[c] = hn::Load(d, u_sums + c * kFloatsPerVector);
    w[c] = hn::Load(d, w_sums + c * kFloatsPerVector);
  }
  constexpr size_t kAheadBytes = 2 * kPairs * kFloatsPerVector * kAheadPerElement<Element>;
  const std::byte* ahead = at.ahead;
  const float* const decays = row.decay + first;
  const float* const k = row.written_k + first;
  const float* const next_k = next.k + first;
  const float* const next_q = next.q + first;
  for (int64_t i = 0; i < rows; ++i) {
    const auto k_i = hn::Set(d, k[i]), decay = hn::Set(d, decays[i]);
    const auto next_k_i = hn::Set(d, next_k[i]);
    const auto next_q_i = hn::Set(d, next_q[i]);
    if (ahead != nullptr) {
      for (size_t b = 0; b < kAheadBytes; b += kLineBytes) prefetch_line(ahead + b);
      ahead += kAheadBytes;
    }
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kPairs; c += 2) {
      FloatVec a, b;
      load_pair(at.from + i * stride + c * kFloatsPerVector, a, b);
      a = hn::MulAdd(k_i, delta[c], hn::Mul(decay, a));
      b = hn::MulAdd(k_i, delta[c + 1], hn::Mul(decay, b));
      store_pair(a, b, at.to + i * stride + c * kFloatsPerVector);
      if (at.rounded != nullptr) {
        store_pair(a, b, at.rounded + i * stride + c * kFloatsPerVector);
      }
      u[c] = hn::MulAdd(a, next_k_i, u[c]);
      w[c] = hn::MulAdd(a, next_q_i, w[c]);
      u[c + 1] = hn::MulAdd(b, next_k_i, u[c + 1]);
      w[c + 1] = hn::MulAdd(b, next_q_i, w[c + 1]);
    }
  }
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) {
    hn::Store(u[c], d, u_sums + c * kFloatsPerVector);
    hn::Store(w[c], d, w_sums + c * kFloatsPerVector);
  }
}

/// The sums of one token: delta takes u's place.
struct ColumnSums {
  HWY_ALIGN float u[kMaxHeadDim];
  HWY_ALIGN float w[kMaxHeadDim];

  HWY_INLINE void clear(int64_t columns) {
    std::fill_n(u, columns, 0.0f);
    std::fill_n(w, columns, 0.0f);
  }
};

/// advance_columns() on a whole state; `sums` has row's delta, `next_sums` gets next's products.
template <class From, class Element>
HWY_INLINE void advance_kv(const StepRow& row, const StepRow& next, int64_t K, int64_t V,
                           const ColumnSums& sums, Passage<From, Element> at,
                           ColumnSums* next_sums) {
  const int64_t columns = whole_columns(V), block = rows_at_once(K, columns);
  next_sums->clear(columns);
  for (int64_t i = 0; i < K; i += block) {
    const int64_t rows = std::min(block, K - i);
    for_slices(columns, [&](int64_t c, auto pairs) HWY_ATTR {
      const int64_t offset = i * V + c;
      Passage<From, Element> part{at.from + offset, at.to + offset, nullptr, at.ahead};
      if (at.rounded != nullptr) part.rounded = at.rounded + offset;
      if (at.ahead != nullptr)
        at.ahead += rows * static_cast<int64_t>(2 * decltype(pairs)::value * kFloatsPerVector *
                                                kAheadPerElement<Element>);
      advance_columns<decltype(pairs)::value>(row, next, i, rows, V, sums.u + c, part,
                                              next_sums->u + c, next_sums->w + c);
    });
  }
}

/// Where the float32 state after token t is left for the next token: the place of the next state
/// that is written, which nobody reads before, or the scratch.
template <class Element>
HWY_INLINE float* passing_place(const HeadSteps& steps, int64_t t) {
  if constexpr (std::is_same_v<Element, float>) {
    for (; t < steps.tokens; ++t) {
      if (steps.final[t] != nullptr) return static_cast<float*>(steps.final[t]);
    }
  }
  return steps.scratch;
}

/// All steps of a kv state whose written states have the dtype of the initial one; returns how many
/// columns were done, a multiple of two vectors. tokens > 1.
template <class Element>
HWY_INLINE int64_t sweep_tokens(const HeadSteps& steps, const float* kq, const Element* initial) {
  constexpr bool kRounds = !std::is_same_v<Element, float>;
  const int64_t K = steps.K, V = steps.V, last = steps.tokens - 1, columns = whole_columns(V);
  ColumnSums sums[2];
  HWY_ALIGN DecayRow decays;
  StepRow row = step_row(steps, 0, kq[0]);
  sums[0].clear(columns);
  products_kv(row, K, V, initial, sums[0].u, sums[0].w);
  const float* passed = nullptr;
  const auto* ahead = static_cast<const std::byte*>(steps.next);
  for (int64_t t = 0; t < last; ++t) {
    ColumnSums &now = sums[t % 2], &then = sums[1 - t % 2];
    const StepRow next = step_row(steps, t + 1, kq[t + 1]);
    take_decay(K, decays, &row);
    finish_columns<Element>(row, columns, now.u, now.w);
    float* const place = passing_place<Element>(steps, t);
    auto* const rounded = kRounds ? static_cast<Element*>(steps.final[t]) : nullptr;
    const bool asks = ahead != nullptr && last - t <= kSweepsThatAsk<Element>;
    if (passed == nullptr) {
      advance_kv(row, next, K, V, now,
                 Passage<Element, Element>{initial, place, rounded, asks ? ahead : nullptr}, &then);
    } else {
      advance_kv(row, next, K, V, now,
                 Passage<float, Element>{passed, place, rounded, asks ? ahead : nullptr}, &then);
    }
    if (asks) ahead = kRounds ? nullptr : ahead + K * V;
    passed = place;
    row = next;
  }
  take_decay(K, decays, &row);
  ColumnSums& now = sums[last % 2];
  finish_columns<Element>(row, columns, now.u, now.w);
  if (steps.final[last] != nullptr) {
    update_kv(row, K, V, now.u, passed, static_cast<Element*>(steps.final[last]), ahead);
  }
  return columns;
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STEP_TOKENS_INL_H_
