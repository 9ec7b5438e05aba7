// Converts bfloat16 and float16 as bits, rounded to nearest even, without compiler types.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_NUMERIC_HPP_
#define SLUICE_CORE_NUMERIC_HPP_

#include <bit>
#include <cstdint>

namespace sluice::core {

constexpr float float_from_bfloat16(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Round to nearest even; NaN stays NaN (quiet), overflow becomes inf.
constexpr uint16_t bfloat16_from_float(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float float_from_float16(uint16_t half) noexcept {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // inf, NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  if (magnitude >= 0x400u) {  // normal: rebias the exponent by 127 - 15
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  }
  // Subnormal: magnitude * 2^-24, exact in float.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

/// Round to nearest even with subnormals; overflow becomes inf.
constexpr uint16_t float16_from_float(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, let the float adder round
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // ulp of [0.5,1) is 2^-24
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

/// Round to odd: `value` itself if it is a float, else the one of its two neighbours with an odd
/// last bit. Rounding that on to bfloat16 or float16 is one rounding of `value` (two roundings to
/// nearest are not), because a float has at least two more bits than either.
constexpr float float_to_odd_from_double(double value) noexcept {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away_from_zero = value < 0 ? back < value : back > value;
  if (away_from_zero) --bits;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_NUMERIC_HPP_
