// Computes gated RMSNorm of rows that lie in float32 scratch (compiled once for each instruction
// set). Used by gated_rms_norm and by the layer's decode step, so that both give the same bits.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_NORM_ROWS_INL_H_
#undef SLUICE_CPU_KERNELS_NORM_ROWS_INL_H_
#else
#define SLUICE_CPU_KERNELS_NORM_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/convert-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Columns of a row that are worked on at once; a multiple of every vector length.
constexpr int64_t kNormColumns = 512;
static_assert(kNormColumns % (HWY_MAX_BYTES / sizeof(float)) == 0);

/// sum(x^2) of `count` floats, zero-padded to whole vectors.
inline float sum_of_squares(const float* x, int64_t count) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  // NUM: two chains of partial sums, so the error grows with V / (2 lanes), not with V.
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes < count; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  if (i < count) {
    const auto a = hn::LoadU(d, x + i);
    even = hn::MulAdd(a, a, even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

/// 1 / sqrt(sum / V + eps).
inline float rms_factor(float sum, int64_t V, double eps) noexcept {
  return 1.0f / std::sqrt(sum / static_cast<float>(V) + static_cast<float>(eps));
}

/// out = x * weight * act(z) on vector-aligned floats of whole vectors, x being normalised.
template <bool kSilu>
void gate_columns(const float* x, const float* z, const float* weight, int64_t count,
                  float* out) noexcept {
  const FloatTag d;
  for (int64_t i = 0; i < count; i += float_lanes()) {
    const auto value = hn::Load(d, z + i);
    const auto weighted = hn::Mul(hn::Load(d, x + i), hn::Load(d, weight + i));
    if constexpr (kSilu) {
      hn::Store(hn::Mul(weighted, silu(d, value)), d, out + i);
    } else {
      hn::Store(hn::Mul(weighted, sigmoid(d, value)), d, out + i);
    }
  }
}

/// x <- factor * x.
inline void scale_columns(float factor, int64_t count, float* x) noexcept {
  const FloatTag d;
  const auto f = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += float_lanes()) {
    hn::Store(hn::Mul(f, hn::Load(d, x + i)), d, x + i);
  }
}

/// How rows are normalised.
struct NormRule {
  int64_t V;
  double eps;
  sluice_activation activation;
  bool round_x;           ///< x is rounded to `dtype` first
  bool round_normalised;  ///< the normalised x is rounded to `dtype`
  sluice_dtype dtype;
};

/// The rule of the operator gated_rms_norm.
inline NormRule operator_norm_rule(const core::GatedNormProblem& p) noexcept {
  return {p.V, p.eps, p.activation, false, p.rounding == SLUICE_NORM_ROUND_HF, p.x.dtype};
}

/// The rule inside a layer, where x comes in float32. ROUND_HF and ROUND_INPUT both start from a
/// core output of out's dtype, as the operators called one after the other would.
inline NormRule layer_norm_rule(const core::GatedNormProblem& p) noexcept {
  const bool round_x = p.rounding != SLUICE_NORM_ROUND_ONCE;
  return {p.V, p.eps, p.activation, round_x, p.rounding == SLUICE_NORM_ROUND_HF, p.out.dtype};
}

/// Columns of a row, zero-padded to whole vectors: x <- the result. `factor` is
/// rms_factor() of the whole row.
inline void norm_columns(const NormRule& rule, float factor, const float* z, const float* weight,
                         int64_t count, float* x) noexcept {
  scale_columns(factor, count, x);
  if (rule.round_normalised) round_through(x, count, rule.dtype);
  if (rule.activation == SLUICE_ACTIVATION_SILU) {
    gate_columns<true>(x, z, weight, count, x);
  } else {
    gate_columns<false>(x, z, weight, count, x);
  }
}

/// A whole row, all three zero-padded to whole vectors: x <- the result.
inline void norm_row(const NormRule& rule, const float* z, const float* weight, float* x) noexcept {
  const int64_t whole = whole_vectors(rule.V);
  if (rule.round_x) round_through(x, whole, rule.dtype);
  float sum = 0;
  for (int64_t first = 0; first < whole; first += kNormColumns) {
    sum += sum_of_squares(x + first, std::min(kNormColumns, whole - first));
  }
  norm_columns(rule, rms_factor(sum, rule.V, rule.eps), z, weight, whole, x);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_NORM_ROWS_INL_H_
