// Loads and stores two vectors of a state's elements at a time, to and from float32: what the
// sweeps of step_sweeps-inl.h read and write. Rounding is to nearest even, subnormals are kept.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_STEP_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_STEP_ELEMENTS_INL_H_
#undef SLUICE_CPU_KERNELS_STEP_ELEMENTS_INL_H_
#else
#define SLUICE_CPU_KERNELS_STEP_ELEMENTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/state_panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kFloatsPerVector = HWY_LANES(float);
constexpr int64_t kLanes = static_cast<int64_t>(kFloatsPerVector);

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

#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
/// bfloat16 where the machine rounds it (AVX512-BF16).
struct RoundedByMachine {
  uint16_t bits;
};

HWY_INLINE void load_pair(const RoundedByMachine* from, FloatVec& a, FloatVec& b) {
  load_pair(&from->bits, a, b);
}

/// Bits of x in the low 256 bits, of y in the high ones. WHY assembly: the target that these files
/// are compiled for lacks the instruction, and functions of another target cannot be inlined.
HWY_INLINE __m512i machine_bfloat16(FloatVec x, FloatVec y) {
  __m512i result;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(result) : "v"(x.raw), "v"(y.raw));
  return result;
}

/// Whether the machine would flush an element: it takes subnormals for zeros.
HWY_INLINE bool has_subnormals(FloatVec x, FloatVec y) {
  constexpr int kSubnormal = 0x20;
  return _kortestz_mask16_u8(_mm512_fpclass_ps_mask(x.raw, kSubnormal),
                             _mm512_fpclass_ps_mask(y.raw, kSubnormal)) == 0;
}

HWY_INLINE void store_pair(FloatVec a, FloatVec b, RoundedByMachine* to) {
  if (HWY_UNLIKELY(has_subnormals(a, b))) return store_pair(a, b, &to->bits);
  // Word 2 i from a, 2 i + 1 from b.
  alignas(64) static constexpr uint16_t kTurns[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  _mm512_storeu_si512(to,
                      _mm512_permutexvar_epi16(_mm512_load_si512(kTurns), machine_bfloat16(a, b)));
}

template <>
HWY_INLINE void load_columns<RoundedByMachine>(const float* from, FloatVec& a, FloatVec& b) {
  load_columns<uint16_t>(from, a, b);
}
template <>
HWY_INLINE void store_columns<RoundedByMachine>(FloatVec a, FloatVec b, float* to) {
  store_columns<uint16_t>(a, b, to);
}
#endif

/// Two vectors of adjacent elements, in order.
template <class Element>
HWY_INLINE void store_in_order(FloatVec a, FloatVec b, Element* to) {
  store_vector(a, to);
  store_vector(b, to + kFloatsPerVector);
}
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
HWY_INLINE void store_in_order(FloatVec a, FloatVec b, uint16_t* to) {
  const HalfTag halves;
  auto low = round_to_high_half(a), high = round_to_high_half(b);
  if (HWY_UNLIKELY(!hn::AllFalse(FloatTag(), hn::IsNaN(hn::Add(a, b))))) {
    low = keep_nan_bits(a, low);
    high = keep_nan_bits(b, high);
  }
  hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, high), hn::BitCast(halves, low)), halves,
             to);
}
HWY_INLINE void store_vector(FloatVec value, RoundedByMachine* to) {
  store_vector(value, &to->bits);
}
HWY_INLINE void store_in_order(FloatVec a, FloatVec b, RoundedByMachine* to) {
  if (HWY_UNLIKELY(has_subnormals(a, b))) return store_in_order(a, b, &to->bits);
  _mm512_storeu_si512(to, machine_bfloat16(a, b));
}
HWY_INLINE void copy_rows(const RoundedByMachine* from, int64_t from_stride, int64_t rows,
                          int64_t width, float* to, int64_t to_stride) {
  copy_rows(&from->bits, from_stride, rows, width, to, to_stride);
}
#endif

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_STEP_ELEMENTS_INL_H_
