// Converts runs of elements of any floating dtype to and from float32, strided or dense (compiled
// once for each instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONVERT_INL_H_
#undef SLUICE_CPU_KERNELS_CONVERT_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

/// Lanes of a float32 vector.
inline int64_t float_lanes() noexcept { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

/// `count` rounded up to whole vectors.
inline int64_t whole_vectors(int64_t count) noexcept {
  const int64_t lanes = float_lanes();
  return (count + lanes - 1) / lanes * lanes;
}

/// The bfloat16 values in the low halves of `bits`.
inline hn::Vec<FloatTag> float_from_bfloat16(const uint16_t* source) noexcept {
  const FloatTag d;
  const hn::Rebind<uint32_t, FloatTag> d32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, source))));
}

/// Rounds to nearest even; NaN stays NaN. WHY: Highway 1.0.3's own DemoteTo(bfloat16) truncates, and
/// its Ne() finds NaN equal to itself on x86.
inline void bfloat16_from_float(hn::Vec<FloatTag> value, uint16_t* target) noexcept {
  const FloatTag d;
  const hn::Rebind<uint32_t, FloatTag> d32;
  const hn::Rebind<int32_t, FloatTag> di32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::MaskFromVec(hn::BitCast(d32, hn::VecFromMask(d, hn::IsNaN(value))));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, result)), d16, target);
}

// WHY only these targets: the others emulate float16 without round-to-nearest-even.
constexpr bool kFloat16Vectors = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

/// Dense elements source[i] to target[i].
inline void read_dense(const void* source, sluice_dtype dtype, int64_t count,
                       float* target) noexcept {
  if (core::same(dtype, core::kFloat32)) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* elements = static_cast<const uint16_t*>(source);
  const FloatTag d;
  const int64_t lanes = float_lanes();
  int64_t i = 0;
  if (core::same(dtype, core::kBFloat16)) {
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(float_from_bfloat16(elements + i), d, target + i);
    }
    for (; i < count; ++i) target[i] = core::float_from_bfloat16(elements[i]);
    return;
  }
  if constexpr (kFloat16Vectors) {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    for (; i + lanes <= count; i += lanes) {
      const auto* halves = reinterpret_cast<const hwy::float16_t*>(elements + i);
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, halves)), d, target + i);
    }
  }
  for (; i < count; ++i) target[i] = core::float_from_float16(elements[i]);
}

/// Dense target[i] = source[i], rounded once to nearest even.
inline void write_dense(const float* source, int64_t count, void* target,
                        sluice_dtype dtype) noexcept {
  if (core::same(dtype, core::kFloat32)) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* elements = static_cast<uint16_t*>(target);
  const FloatTag d;
  const int64_t lanes = float_lanes();
  int64_t i = 0;
  if (core::same(dtype, core::kBFloat16)) {
    for (; i + lanes <= count; i += lanes) {
      bfloat16_from_float(hn::LoadU(d, source + i), elements + i);
    }
    for (; i < count; ++i) elements[i] = core::bfloat16_from_float(source[i]);
    return;
  }
  if constexpr (kFloat16Vectors) {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    for (; i + lanes <= count; i += lanes) {
      auto* halves = reinterpret_cast<hwy::float16_t*>(elements + i);
      hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, source + i)), d16, halves);
    }
  }
  for (; i < count; ++i) elements[i] = core::float16_from_float(source[i]);
}

/// target[i] = element i * stride.
inline void read_strided(const void* source, sluice_dtype dtype, int64_t stride, int64_t count,
                         float* target) noexcept {
  if (stride == 1) return read_dense(source, dtype, count, target);
  if (core::same(dtype, core::kFloat32)) {
    const auto* elements = static_cast<const float*>(source);
    for (int64_t i = 0; i < count; ++i) target[i] = elements[i * stride];
    return;
  }
  const auto* elements = static_cast<const uint16_t*>(source);
  if (core::same(dtype, core::kBFloat16)) {
    for (int64_t i = 0; i < count; ++i) {
      target[i] = core::float_from_bfloat16(elements[i * stride]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] = core::float_from_float16(elements[i * stride]);
  }
}

/// Element i * stride = source[i], rounded once to nearest even.
inline void write_strided(const float* source, int64_t count, void* target, sluice_dtype dtype,
                          int64_t stride) noexcept {
  if (stride == 1) return write_dense(source, count, target, dtype);
  if (core::same(dtype, core::kFloat32)) {
    auto* elements = static_cast<float*>(target);
    for (int64_t i = 0; i < count; ++i) elements[i * stride] = source[i];
    return;
  }
  auto* elements = static_cast<uint16_t*>(target);
  if (core::same(dtype, core::kBFloat16)) {
    for (int64_t i = 0; i < count; ++i) {
      elements[i * stride] = core::bfloat16_from_float(source[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) elements[i * stride] = core::float16_from_float(source[i]);
  }
}

/// values[i] after a trip through `dtype`.
inline void round_through(float* values, int64_t count, sluice_dtype dtype) noexcept {
  if (core::same(dtype, core::kFloat32)) return;
  constexpr int64_t kPiece = 256;
  uint16_t piece[kPiece];
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t length = count - i < kPiece ? count - i : kPiece;
    write_dense(values + i, length, piece, dtype);
    read_dense(piece, dtype, length, values + i);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONVERT_INL_H_
