// Computes SiLU and sigmoid of a vector (compiled once for each instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_ACTIVATION_INL_H_
#undef SLUICE_CPU_KERNELS_ACTIVATION_INL_H_
#else
#define SLUICE_CPU_KERNELS_ACTIVATION_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kExpLimit = 85.0f;

/// exp(x) for |x| <= kExpLimit, about 1 ulp. WHY not Highway's: it holds for all floats and costs
/// twice the instructions, and the exponential is most of what surrounds the delta rule.
template <class D, class V>
HWY_INLINE V exp_limited(D d, V x) noexcept {
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // NUM: ln 2 in two parts, the first of 9 bits, so that its product with n is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // e^r - 1 - r = r^2 p(r) for |r| <= ln 2 / 2: the polynomial of Cephes' expf.
  V p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  const V power = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  // BOUND: |n| <= 123, so the exponent stays that of a normal number.
  const auto shift = hn::ShiftLeft<23>(hn::ConvertTo(di, n));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, power), shift));
}
/// 1 / (1 + exp(-x)) for numbers, about 2 ulp above -85; 0 for -inf, and between some 1e-37 for 0.
/// NaN gives any finite number.
template <class D, class V>
HWY_INLINE V sigmoid_of_number(D d, V x) noexcept {
  const V limit = hn::Set(d, kExpLimit);
  const V limited = hn::Min(hn::Max(hn::Neg(x), hn::Neg(limit)), limit);
  const V sum = hn::Add(hn::Set(d, 1.0f), exp_limited(d, limited));
  V inverse;
#if HWY_TARGET == HWY_AVX3
  // PERF: 14 bits and a Newton step take 3 cycles, a division of 16 lanes 10 (Zen 4).
  inverse = hn::ApproximateReciprocal(sum);
  inverse = hn::Mul(inverse, hn::NegMulAdd(sum, inverse, hn::Set(d, 2.0f)));
#else
  inverse = hn::Div(hn::Set(d, 1.0f), sum);
#endif
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -104.0f)), inverse);
}

/// 1 / (1 + exp(-x)).
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) noexcept {
  return hn::IfThenElse(hn::Eq(x, x), sigmoid_of_number(d, x), x);
}

/// x / (1 + exp(-x)), 0 below -104; NaN for -inf.
template <class D, class V>
HWY_INLINE V silu(D d, V x) noexcept {
  return hn::Mul(x, sigmoid_of_number(d, x));
}

/// Derivative of sigmoid.
template <class D, class V>
HWY_INLINE V sigmoid_slope(D d, V x) noexcept {
  const V s = sigmoid(d, x);
  return hn::NegMulAdd(s, s, s);
}

/// Derivative of silu.
template <class D, class V>
HWY_INLINE V silu_slope(D d, V x) noexcept {
  const V s = sigmoid_of_number(d, x);
  return hn::MulAdd(hn::Mul(s, x), hn::Sub(hn::Set(d, 1.0f), s), s);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_ACTIVATION_INL_H_
