// Runs one token on one head's state where it lies, in two sweeps.
// Math    One token on one head's state where it lies: u = S^T k, w = S^T q in one sweep, then
//         delta = beta (v - alpha u), o = alpha w + (k . q) delta, and S <- alpha S + k delta^T in
//         a second. Linear attention: delta = v. Key-wise gates: the first sweep reads k and q with
//         their decays, the second has a decay for each row of S, and alpha is 1.
// Order   A lane is a column of S; sums run over k in ascending order with fused multiply-adds, for
//         both layouts alike, so that the bits depend on neither layout nor width.
// Memory  kv: whole rows, so that the first sweep is one stream for the hardware's prefetcher; the
//         second finds the state in L2. vk: some rows at a time (a row is a column of S), whose
//         products transpose in registers; the second sweep finds them in L1.
//         PERF Both sweeps are at the multiply-add limit when the state is in L2; out of memory the
//         time of the second one is lost unless it asks for the next state: see
//         docs/kernels/cpu_decode.md
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#undef SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#else
#define SLUICE_CPU_KERNELS_STEP_SWEEPS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/step_elements-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLineBytes = 64;

/// Vectors of a sweep of a kv state: as many as the registers hold, for long contiguous rows.
constexpr size_t kSweepVectors = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int64_t kSweepColumns = static_cast<int64_t>(kSweepVectors) * kLanes;
/// Rows of a kv state that are read slice by slice where a slice is not the whole row.
constexpr int64_t kBlockRows = 8;
/// Vectors of columns that a sweep of a vk state transposes at once: their sums hide the latency.
constexpr size_t kTurnVectors = 2;
constexpr int64_t kTurnColumns = static_cast<int64_t>(kTurnVectors) * kLanes;
/// Vectors of k that the second sweep of a vk state keeps in registers.
constexpr size_t kKeptVectors = 8;
/// Groups of kTurnColumns rows between a vk state's first sweep and what it asks for.
constexpr int64_t kGroupsAhead = 4;

/// What one step does to one run of columns.
struct StepRow {
  const float* q;
  const float* k;          ///< that S is multiplied by
  const float* written_k;  ///< that delta is multiplied by
  const float* decay;      ///< [K]: of each row of S; null: alpha, see take_decay()
  const float* v;          ///< at the run's first column
  float* o;                ///< at the run's first column
  float alpha, beta, kq;
  bool delta_rule;
};

/// A decay for each row of S, whatever the gates.
using DecayRow = float[kMaxHeadDim];
HWY_INLINE void take_decay(int64_t K, DecayRow& memory, StepRow* row) {
  if (row->decay != nullptr) return;
  std::fill_n(memory, K, row->alpha);
  row->decay = memory;
}

/// Asks for one line to be in L2. WHY L2: what waits for memory in L1's few miss buffers keeps the
/// sweep beside it from its own lines.
HWY_INLINE void prefetch_line(const std::byte* address) { __builtin_prefetch(address, 0, 2); }

/// delta of one vector of columns from u = S^T k, and o in w's place from w = S^T q.
HWY_INLINE FloatVec finish_vector(const StepRow& row, FloatVec v, FloatVec u, FloatVec& w) {
  const FloatTag d;
  const auto alpha = hn::Set(d, row.alpha);
  const auto delta = row.delta_rule ? hn::Mul(hn::Set(d, row.beta), hn::NegMulAdd(alpha, u, v)) : v;
  w = hn::MulAdd(alpha, w, hn::Mul(hn::Set(d, row.kq), delta));
  return delta;
}

/// Adds the products of some rows of S with k and q to u and w, for 2 kPairs vectors of columns.
template <size_t kPairs, class Element>
HWY_INLINE void add_products(const float* k, const float* q, int64_t rows, const Element* from,
                             int64_t stride, float* u_sums, float* w_sums) {
  const FloatTag d;
  FloatVec u[2 * kPairs], w[2 * kPairs];
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) {
    u[c] = hn::Load(d, u_sums + c * kFloatsPerVector);
    w[c] = hn::Load(d, w_sums + c * kFloatsPerVector);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const auto k_i = hn::Set(d, k[i]);
    const auto q_i = hn::Set(d, q[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kPairs; c += 2) {
      FloatVec a, b;
      load_pair(from + i * stride + c * kFloatsPerVector, a, b);
      u[c] = hn::MulAdd(a, k_i, u[c]);
      w[c] = hn::MulAdd(a, q_i, w[c]);
      u[c + 1] = hn::MulAdd(b, k_i, u[c + 1]);
      w[c + 1] = hn::MulAdd(b, q_i, w[c + 1]);
    }
  }
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) {
    hn::Store(u[c], d, u_sums + c * kFloatsPerVector);
    hn::Store(w[c], d, w_sums + c * kFloatsPerVector);
  }
}

/// The same for one of the two products and twice as many columns: a whole row of 2 kSweepColumns
/// keeps its sums in registers if k and q take turns.
template <class Element>
HWY_INLINE void add_row_product(const float* k, int64_t rows, const Element* from, int64_t stride,
                                float* row_sums) {
  const FloatTag d;
  FloatVec sums[2 * kSweepVectors];
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kSweepVectors; ++c) {
    sums[c] = hn::Load(d, row_sums + c * kFloatsPerVector);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const auto k_i = hn::Set(d, k[i]);
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kSweepVectors; c += 2) {
      FloatVec a, b;
      load_pair(from + i * stride + c * kFloatsPerVector, a, b);
      sums[c] = hn::MulAdd(a, k_i, sums[c]);
      sums[c + 1] = hn::MulAdd(b, k_i, sums[c + 1]);
    }
  }
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kSweepVectors; ++c) {
    hn::Store(sums[c], d, row_sums + c * kFloatsPerVector);
  }
}

/// Bytes of the next state that the update of one element asks for. PERF a quarter of a float32
/// state: 104 -> 97 us, half: 3 % slower than that, all: 34 %; all of a bfloat16 state: 82 -> 67
/// us, a half or less: 82 to 88 (32 heads, 128 x 128, cold, Zen 4, 2026-11). What is not asked for
/// comes by the hardware's prefetcher while the next state is read, which is better as long as it
/// keeps up.
template <class Element>
constexpr size_t kAheadPerElement = sizeof(Element) == sizeof(float) ? 1 : sizeof(Element);

/// to = diag(decay) from + k delta^T on some rows of S and 2 kPairs vectors of columns; `to` may be
/// `from`. Meanwhile asks for what lies at `ahead` (may be null).
template <size_t kPairs, class From, class Element>
HWY_INLINE void update_columns(const float* k, const float* decays, const float* delta_row,
                               int64_t rows, const From* from, Element* to, int64_t stride,
                               const std::byte* ahead) {
  const FloatTag d;
  constexpr size_t kAheadBytes = 2 * kPairs * kFloatsPerVector * kAheadPerElement<Element>;
  FloatVec delta[2 * kPairs];
  SLUICE_UNROLL
  for (size_t c = 0; c < 2 * kPairs; ++c) delta[c] = hn::Load(d, delta_row + c * kFloatsPerVector);
  for (int64_t i = 0; i < rows; ++i) {
    const auto k_i = hn::Set(d, k[i]), decay = hn::Set(d, decays[i]);
    if (ahead != nullptr) {
      for (size_t at = 0; at < kAheadBytes; at += kLineBytes) prefetch_line(ahead + at);
      ahead += kAheadBytes;
    }
    SLUICE_UNROLL
    for (size_t c = 0; c < 2 * kPairs; c += 2) {
      FloatVec a, b;
      load_pair(from + i * stride + c * kFloatsPerVector, a, b);
      store_pair(hn::MulAdd(k_i, delta[c], hn::Mul(decay, a)),
                 hn::MulAdd(k_i, delta[c + 1], hn::Mul(decay, b)),
                 to + i * stride + c * kFloatsPerVector);
    }
  }
}

/// Reads one byte of each line of a run of elements, for nothing but to have it in L1.
template <class Element>
HWY_INLINE void touch(const Element* from, int64_t count) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  const int64_t size = count * static_cast<int64_t>(sizeof(Element));
  for (int64_t at = 0; at < size; at += static_cast<int64_t>(kLineBytes)) {
    asm volatile("" ::"r"(bytes[at]));
  }
}

/// Calls function(first column, pairs of vectors as a constant) for slices of the columns, widest
/// first.
template <class Function>
HWY_INLINE void for_slices(int64_t columns, Function function) {
  int64_t column = 0;
  const auto slices = [&](auto pairs) HWY_ATTR {
    constexpr auto kColumns = static_cast<int64_t>(2 * decltype(pairs)::value) * kLanes;
    for (; column + kColumns <= columns; column += kColumns) function(column, pairs);
  };
  if constexpr (kSweepVectors > 4) slices(std::integral_constant<size_t, kSweepVectors / 2>());
  slices(std::integral_constant<size_t, 2>());
  slices(std::integral_constant<size_t, 1>());
}

/// delta in u's place, and o, of whole pairs of vectors of columns held in load_pair()'s order.
template <class Element>
HWY_INLINE void finish_columns(const StepRow& row, int64_t columns, float* u_sums,
                               const float* w_sums) {
  const FloatTag d;
  for (int64_t c = 0; c < columns; c += 2 * kLanes) {
    FloatVec v[2], w[2] = {hn::Load(d, w_sums + c), hn::Load(d, w_sums + c + kLanes)};
    load_columns<Element>(row.v + c, v[0], v[1]);
    for (int64_t j = 0; j < 2; ++j) {
      float* const u = u_sums + c + j * kLanes;
      hn::Store(finish_vector(row, v[j], hn::Load(d, u), w[j]), d, u);
    }
    store_columns<Element>(w[0], w[1], row.o + c);
  }
}

/// Columns of a kv state that the sweeps do.
HWY_INLINE int64_t whole_columns(int64_t V) { return V / (2 * kLanes) * (2 * kLanes); }

/// Rows of a kv state that a sweep works on together. WHY blocks: slices of a long row, each over
/// all K rows, would be no stream.
HWY_INLINE int64_t rows_at_once(int64_t K, int64_t columns) {
  return columns <= kSweepColumns ? K : kBlockRows;
}

/// Adds S^T k to u and S^T q to w.
template <class Element>
HWY_INLINE void products_kv(const StepRow& row, int64_t K, int64_t V, const Element* from, float* u,
                            float* w) {
  const int64_t columns = whole_columns(V), block = rows_at_once(K, columns);
  for (int64_t i = 0; i < K; i += block) {
    const int64_t rows = std::min(block, K - i);
    if (kSweepVectors > 4 && columns == 2 * kSweepColumns) {
      add_row_product(row.k + i, rows, from + i * V, V, u);
      add_row_product(row.q + i, rows, from + i * V, V, w);
      continue;
    }
    if (block < K) touch(from + i * V, rows * V);
    for_slices(columns, [&](int64_t c, auto pairs) HWY_ATTR {
      add_products<decltype(pairs)::value>(row.k + i, row.q + i, rows, from + i * V + c, V, u + c,
                                           w + c);
    });
  }
}

/// to = diag(decay) from + k delta^T; meanwhile asks for what lies at `next` (may be null).
template <class From, class Element>
HWY_INLINE void update_kv(const StepRow& row, int64_t K, int64_t V, const float* delta,
                          const From* from, Element* to, const void* next) {
  const int64_t columns = whole_columns(V), block = rows_at_once(K, columns);
  const auto* ahead = static_cast<const std::byte*>(next);
  for (int64_t i = 0; i < K; i += block) {
    const int64_t rows = std::min(block, K - i);
    for_slices(columns, [&](int64_t c, auto pairs) HWY_ATTR {
      constexpr size_t kPairs = decltype(pairs)::value;
      update_columns<kPairs>(row.written_k + i, row.decay + i, delta + c, rows, from + i * V + c,
                             to + i * V + c, V, ahead);
      if (ahead != nullptr)
        ahead +=
            rows * static_cast<int64_t>(2 * kPairs * kFloatsPerVector * kAheadPerElement<Element>);
    });
  }
}

/// The one step of a kv state in place; returns how many columns it did, a multiple of two vectors.
template <class Element>
HWY_INLINE int64_t sweep_kv(StepRow row, int64_t K, int64_t V, const Element* from, Element* to,
                            const void* next) {
  const int64_t columns = whole_columns(V);
  HWY_ALIGN DecayRow decay;
  take_decay(K, decay, &row);
  HWY_ALIGN float u[kMaxHeadDim], w[kMaxHeadDim];
  std::fill_n(u, columns, 0.0f);
  std::fill_n(w, columns, 0.0f);
  products_kv(row, K, V, from, u, w);
  finish_columns<Element>(row, columns, u, w);
  if (to != nullptr) update_kv(row, K, V, u, from, to, next);
  return columns;
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

/// to[c][i] = decay[i] rows[c][i] + delta[c] k[i] for kTurnColumns rows c and kVectors vectors of i.
template <size_t kVectors, class Element>
HWY_INLINE void update_rows(const float* HWY_RESTRICT k, const float* HWY_RESTRICT decay,
                            const float* delta, int64_t K, const float* rows, Element* to) {
  const FloatTag d;
  FloatVec kept[kVectors];
  SLUICE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) kept[j] = hn::LoadU(d, k + j * kFloatsPerVector);
  for (int64_t c = 0; c < kTurnColumns; ++c) {
    const auto factor = hn::Set(d, delta[c]);
    const auto updated = [&](size_t j) HWY_ATTR {
      const auto s = hn::LoadU(d, rows + c * K + j * kFloatsPerVector);
      return hn::MulAdd(kept[j], factor, hn::Mul(hn::LoadU(d, decay + j * kFloatsPerVector), s));
    };
    SLUICE_UNROLL
    for (size_t j = 0; j + 2 <= kVectors; j += 2) {
      store_in_order(updated(j), updated(j + 1), to + c * K + j * kFloatsPerVector);
    }
    if constexpr (kVectors % 2 != 0) {
      store_vector(updated(kVectors - 1), to + c * K + (kVectors - 1) * kFloatsPerVector);
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
  HWY_ALIGN DecayRow decay;
  take_decay(K, decay, &row);
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
      update_rows<kKeptVectors>(row.written_k + i, row.decay + i, delta, K, rows + i, out + i);
    }
    for (; i + 2 * kLanes <= K; i += 2 * kLanes) {
      update_rows<2>(row.written_k + i, row.decay + i, delta, K, rows + i, out + i);
    }
    for (; i < K; i += kLanes) {
      update_rows<1>(row.written_k + i, row.decay + i, delta, K, rows + i, out + i);
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
