// Per-target: SiLU and sigmoid of a vector.
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

/// 1 + exp(-x), inf for x below about -88.7, NaN for NaN.
template <class D, class V>
HWY_INLINE V one_plus_exp_neg(D d, V x) noexcept {
  // BOUND: Highway's exponent arithmetic holds up to about 170; exp(100) is inf in float32 already.
  const V limited = hn::Min(hn::Neg(x), hn::Set(d, 100.0f));
  const V sum = hn::Add(hn::Set(d, 1.0f), hn::Exp(d, limited));
  return hn::IfThenElse(hn::Eq(x, x), sum, x);  // WHY: Highway's Exp and Min drop NaN
}

/// 1 / (1 + exp(-x)), about 2 ulp.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) noexcept {
  return hn::Div(hn::Set(d, 1.0f), one_plus_exp_neg(d, x));
}

/// x / (1 + exp(-x)), about 2 ulp.
template <class D, class V>
HWY_INLINE V silu(D d, V x) noexcept {
  return hn::Div(x, one_plus_exp_neg(d, x));
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_ACTIVATION_INL_H_
