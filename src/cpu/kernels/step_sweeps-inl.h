// Math    One token on one head's state where it lies: u = S^T k, w = S^T q in one sweep, then
//         delta = beta (v - alpha u), o = alpha w + (k . q) delta, and S <- alpha S + k delta^T in
//         a second. Linear attention: delta = v.
// Order   A lane is a column of S; sums run over k in ascending order with fused multiply-adds, for
//         both layouts alike, so that the bits depend on neither layout nor width.
// Memory  kv: whole rows, so that the first sweep is one stream for the hardware's prefetcher; the
//         second finds the state in L2. vk: some rows at a time (a row is a column of S), whose
//         products transpose in registers; the second sweep finds them in L1.
//         PERF Both sweeps are at the multiply-add limit when the state is in L2; out of memory the
//         time of the second one is lost unless it asks for the next state: see docs/kernels/cpu.md
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#undef SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#else
#define SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/state_panels-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kFloatsPerVector = HWY_LANES(float);
constexpr int64_t kLanes = static_cast<int64_t>(kFloatsPerVector);
constexpr size_t kLineBytes = 64;

/// Vectors of a sweep of a kv state: as many as the registers hold, for long contiguous rows.
constexpr size_t kSweepVectors = HWY_TARGET == HWY_AVX3 ? 8 : 4;
/// Vectors of columns that a sweep of a vk state transposes at once: their sums hide the latency.
constexpr size_t kTurnVectors = 2;
constexpr int64_t kTurnColumns = static_cast<int64_t>(kTurnVectors) * kLanes;
/// Vectors of k that the second sweep of a vk state keeps in registers.
constexpr size_t kKeptVectors = 8;
/// Groups of kTurnColumns rows between a vk state's first sweep and what it asks for.
constexpr int64_t kGroupsAhead = 2;

/// What one step does to one run of columns.
struct StepRow {
  const float* q;
  const float* k;
  const float* v;  ///< at the run's first column
  float* o;        ///< at the run's first column
  float alpha, beta, kq;
  bool delta_rule;
};

/// Asks for one line to be in L2. WHY L2: what waits for memory in L1's few miss buffers keeps the
/// sweep beside it from its own lines.
HWY_INLINE void prefetch_line(const std::byte* address) { __builtin_prefetch(address, 0, 2); }

/// Two vectors of columns of a row of S. WHY a pair: bfloat16 widens at one instruction a vector if
/// the even columns make one vector and the odd ones the other; load_columns() and store_columns()
/// hold v and o in the same order.
template <class Element>
HWY_INLINE void load_pair(const Element* from, FloatVec& a, FloatVec& b) {
  a = load_vector(from);
  b = load_vector(from + kFloatsPerVector);
}
template <class Element>
HWY_INLINE void store_pair(FloatVec a, FloatVec b, Element* to) {
  store_vector(a, to);
  store_vector(b, to + kFloatsPerVector);
}
template <class Element>
HWY_INLINE void load_columns(const float* from, FloatVec& a, FloatVec& b) {
  load_pair(from, a, b);
}
template <class Element>
HWY_INLINE void store_columns(FloatVec a, FloatVec b, float* to) {
  store_pair(a, b, to);
}

#if HWY_TARGET != HWY_SCALAR
using WordTag = hn::Repartition<uint32_t, FloatTag>;
using HalfTag = hn::Repartition<uint16_t, FloatTag>;

HWY_INLINE void load_pair(const uint16_t* from, FloatVec& a, FloatVec& b) {
  const FloatTag d;
  const WordTag words;
  const auto both = hn::BitCast(words, hn::LoadU(HalfTag(), from));
  a = hn::BitCast(d, hn::ShiftLeft<16>(both));
  b = hn::BitCast(d, hn::And(both, hn::Set(words, 0xffff0000u)));
}

/// The bits of x rounded to nearest even at bit 16; the low half is noise. NaN is not looked at.
HWY_INLINE hn::Vec<WordTag> round_to_high_half(FloatVec x) {
  const WordTag words;
  const auto bits = hn::BitCast(words, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  return hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd);
}

HWY_INLINE hn::Vec<WordTag> keep_nan_bits(FloatVec x, hn::Vec<WordTag> rounded) {
  const WordTag words;
  const auto quiet = hn::Or(hn::BitCast(words, x), hn::Set(words, 0x00400000u));
  const auto is_nan =
      hn::MaskFromVec(hn::BitCast(words, hn::VecFromMask(FloatTag(), hn::IsNaN(x))));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

HWY_INLINE void store_pair(FloatVec a, FloatVec b, uint16_t* to) {
  const FloatTag d;
  const WordTag words;
  auto even = round_to_high_half(a), odd = round_to_high_half(b);
  // A sum is NaN where either is; infinities of unlike signs take the detour for nothing.
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(hn::Add(a, b))))) {
    even = keep_nan_bits(a, even);
    odd = keep_nan_bits(b, odd);
  }
  const auto both = hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(words, 0xffff0000u)));
  hn::StoreU(hn::BitCast(HalfTag(), both), HalfTag(), to);
}

template <>
HWY_INLINE void load_columns<uint16_t>(const float* from, FloatVec& a, FloatVec& b) {
  hn::LoadInterleaved2(FloatTag(), from, a, b);
}
template <>
HWY_INLINE void store_columns<uint16_t>(FloatVec a, FloatVec b, float* to) {
  hn::StoreInterleaved2(a, b, FloatTag(), to);
}
#endif

/// delta of one vector of columns from u = S^T k, and o in w's place from w = S^T q.
HWY_INLINE FloatVec finish_vector(const StepRow& row, FloatVec v, FloatVec u, FloatVec& w) {
  const FloatTag d;
  const auto alpha = hn::Set(d, row.alpha);
  const auto delta = row.delta_rule ? hn::Mul(hn::Set(d, row.beta), hn::NegMulAdd(alpha, u, v)) : v;
  w = hn::MulAdd(alpha, w, hn::Mul(hn::Set(d, row.kq), delta));
  return delta;
}

/// The products of 2 kPairs vectors of columns of S [K][stride].
template <size_t kPairs, class Element>
HWY_INLINE void column_products(const StepRow& row, int64_t K, const Element* from, int64_t stride,
                                FloatVec (&u)[2 * kPairs], FloatVec (&w)[2 * kPairs]) {
  const FloatTag d;
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) u[c] = w[c] = hn::Zero(d);
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    const auto q = hn::Set(d, row.q[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kPairs; c += 2) {
      FloatVec a, b;
      load_pair(from + i * stride + c * kFloatsPerVector, a, b);
      u[c] = hn::MulAdd(a, k, u[c]);
      w[c] = hn::MulAdd(a, q, w[c]);
      u[c + 1] = hn::MulAdd(b, k, u[c + 1]);
      w[c + 1] = hn::MulAdd(b, q, w[c + 1]);
    }
  }
}

/// One step on 2 kPairs vectors of columns: reads S [K][stride] at `from`, writes it to `to` (may
/// be equal; null: not written). Meanwhile asks for what lies at `ahead` (may be null), a quarter
/// of what it reads. PERF 119 -> 104 us with that quarter, 117 with half, 141 with all (32 heads of
/// float32, 128 x 128, cold, Zen 4, 2026-11): the hardware's prefetcher brings the rest, and
/// better.
template <size_t kPairs, class Element>
HWY_INLINE void step_columns(const StepRow& row, int64_t K, const Element* from, Element* to,
                             int64_t stride, const std::byte* ahead) {
  const FloatTag d;
  FloatVec u[2 * kPairs], w[2 * kPairs], delta[2 * kPairs];
  column_products<kPairs>(row, K, from, stride, u, w);
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; c += 2) {
    FloatVec v[2];
    load_columns<Element>(row.v + c * kFloatsPerVector, v[0], v[1]);
    delta[c] = finish_vector(row, v[0], u[c], w[c]);
    delta[c + 1] = finish_vector(row, v[1], u[c + 1], w[c + 1]);
    store_columns<Element>(w[c], w[c + 1], row.o + c * kFloatsPerVector);
  }
  if (to == nullptr) return;
  constexpr size_t kAheadBytes = 2 * kPairs * kFloatsPerVector * sizeof(Element) / 4;
  const auto alpha = hn::Set(d, row.alpha);
  for (int64_t i = 0; i < K; ++i) {
    const auto k = hn::Set(d, row.k[i]);
    if (ahead != nullptr) {
      for (size_t at = 0; at < kAheadBytes; at += kLineBytes) prefetch_line(ahead + at);
      ahead += kAheadBytes;
    }
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kPairs; c += 2) {
      FloatVec a, b;
      load_pair(from + i * stride + c * kFloatsPerVector, a, b);
      store_pair(hn::MulAdd(k, delta[c], hn::Mul(alpha, a)),
                 hn::MulAdd(k, delta[c + 1], hn::Mul(alpha, b)),
                 to + i * stride + c * kFloatsPerVector);
    }
  }
}

/// The one step of a kv state in place; returns how many columns it did, a multiple of two vectors.
template <class Element>
HWY_INLINE int64_t sweep_kv(StepRow row, int64_t K, int64_t V, const Element* from, Element* to,
                            const void* next) {
  const auto* ahead = static_cast<const std::byte*>(next);
  int64_t column = 0;
  const auto slices = [&]<size_t kPairs>(std::integral_constant<size_t, kPairs>) HWY_ATTR {
    constexpr auto kColumns = static_cast<int64_t>(2 * kPairs * kFloatsPerVector);
    for (; column + kColumns <= V; column += kColumns) {
      step_columns<kPairs>(row, K, from + column, to == nullptr ? to : to + column, V, ahead);
      row.v += kColumns;
      row.o += kColumns;
      if (ahead != nullptr) ahead += K * kColumns * static_cast<int64_t>(sizeof(Element)) / 4;
    }
  };
  if constexpr (kSweepVectors > 4) slices(std::integral_constant<size_t, kSweepVectors / 2>());
  slices(std::integral_constant<size_t, 2>());
  slices(std::integral_constant<size_t, 1>());
  return column;
}

#if HWY_TARGET != HWY_SCALAR
/// u and w of kTurnVectors vectors of columns from rows [column][K] of float32; K % 4 == 0. Asks
/// for ahead_bytes at `ahead` meanwhile, evenly.
HWY_INLINE void turn_products(const StepRow& row, int64_t K, const float* rows,
                              const std::byte* ahead, int64_t ahead_bytes,
                              FloatVec (&u)[kTurnVectors], FloatVec (&w)[kTurnVectors]) {
  const FloatTag d;
  const int64_t step = ahead_bytes / (K / 4);
  SLUICE_UNROLL
  for (size_t c = 0; c < kTurnVectors; ++c) u[c] = w[c] = hn::Zero(d);
  for (int64_t i = 0; i < K; i += 4) {
    for (int64_t at = 0; at < step; at += static_cast<int64_t>(kLineBytes)) {
      prefetch_line(ahead + at);
    }
    ahead += step;
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

/// to[c][i] = alpha rows[c][i] + delta[c] k[i] for kTurnColumns rows c and kVectors vectors of i.
template <size_t kVectors, class Element>
HWY_INLINE void update_rows(const float* k, float alpha, const float* delta, int64_t K,
                            const float* rows, Element* to) {
  const FloatTag d;
  const auto decay = hn::Set(d, alpha);
  FloatVec kept[kVectors];
  SLUICE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) kept[j] = hn::LoadU(d, k + j * kFloatsPerVector);
  for (int64_t c = 0; c < kTurnColumns; ++c) {
    const auto factor = hn::Set(d, delta[c]);
    SLUICE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const auto s = hn::LoadU(d, rows + c * K + j * kFloatsPerVector);
      store_vector(hn::MulAdd(kept[j], factor, hn::Mul(decay, s)),
                   to + c * K + j * kFloatsPerVector);
    }
  }
}

/// The one step of a vk state in place; returns how many columns it did. Needs K to be a multiple
/// of the lanes. `scratch` holds kTurnColumns rows of K.
template <class Element>
HWY_INLINE int64_t sweep_vk(StepRow row, int64_t K, int64_t V, const Element* from, Element* to,
                            const void* next, float* scratch) {
  const FloatTag d;
  const int64_t group_bytes = kTurnColumns * K * static_cast<int64_t>(sizeof(Element));
  const int64_t whole = V / kTurnColumns * kTurnColumns;
  int64_t column = 0;
  for (; column < whole; column += kTurnColumns) {
    const float* rows = scratch;
    if constexpr (std::is_same_v<Element, float>) {
      rows = from + column * K;
    } else {
      copy_rows(from + column * K, K, kTurnColumns, K, scratch, K);
    }
    // The group kGroupsAhead on, in this state or the next one; else what is there already.
    const int64_t later = column + kGroupsAhead * kTurnColumns;
    const Element* ahead = from + (later < whole ? later : column) * K;
    if (later >= whole && next != nullptr) {
      ahead = static_cast<const Element*>(next) + later % whole * K;
    }
    FloatVec u[kTurnVectors], w[kTurnVectors];
    turn_products(row, K, rows, reinterpret_cast<const std::byte*>(ahead), group_bytes, u, w);
    HWY_ALIGN float delta[kTurnColumns];
    SLUICE_UNROLL
    for (size_t c = 0; c < kTurnVectors; ++c) {
      const auto v = hn::LoadU(d, row.v + c * kFloatsPerVector);
      hn::Store(finish_vector(row, v, u[c], w[c]), d, delta + c * kFloatsPerVector);
      hn::StoreU(w[c], d, row.o + c * kFloatsPerVector);
    }
    row.v += kTurnColumns;
    row.o += kTurnColumns;
    if (to == nullptr) continue;
    Element* const out = to + column * K;
    int64_t i = 0;
    constexpr auto kKept = static_cast<int64_t>(kKeptVectors) * kLanes;
    for (; i + kKept <= K; i += kKept) {
      update_rows<kKeptVectors>(row.k + i, row.alpha, delta, K, rows + i, out + i);
    }
    for (; i < K; i += kLanes) {
      update_rows<1>(row.k + i, row.alpha, delta, K, rows + i, out + i);
    }
  }
  return column;
}
#else
/// One lane has nothing to transpose: panels do.
template <class Element>
HWY_INLINE int64_t sweep_vk(StepRow /*row*/, int64_t /*K*/, int64_t /*V*/, const Element* /*from*/,
                            Element* /*to*/, const void* /*next*/, float* /*scratch*/) {
  return 0;
}
#endif

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
