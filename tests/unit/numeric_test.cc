// Tests the conversions of core/numeric.hpp over all 2^16 values of each format and, for rounding,
// over all midpoints between neighbours. The expected values come from long-hand definitions
// (ldexp, neighbour search), not from the bit tricks under test.
// SPDX-License-Identifier: Apache-2.0
#include "core/numeric.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace sluice::core {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

void PrintTo(const Format& format, std::ostream* os) { *os << format.name; }

class Numeric : public ::testing::TestWithParam<Format> {};

/// Value of `bits` by the definition of an IEEE binary format.
double defined_value(const Format& format, uint32_t bits) {
  const uint32_t mantissa_mask = (1u << format.mantissa_bits) - 1;
  const uint32_t exponent_mask = (1u << format.exponent_bits) - 1;
  const auto mantissa = static_cast<double>(bits & mantissa_mask);
  const uint32_t exponent = (bits >> format.mantissa_bits) & exponent_mask;
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent == exponent_mask) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (mantissa_mask + 1.0),
                           static_cast<int>(exponent) - bias - format.mantissa_bits);
}

TEST_P(Numeric, WidensEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const double expected = defined_value(GetParam(), bits);
    const auto found = static_cast<double>(GetParam().widen(static_cast<uint16_t>(bits)));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << std::hex << bits;
    } else {
      ASSERT_EQ(found, expected) << std::hex << bits;
      ASSERT_EQ(std::signbit(found), std::signbit(expected)) << std::hex << bits;
    }
  }
}

TEST_P(Numeric, NarrowingUndoesWidening) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float wide = GetParam().widen(static_cast<uint16_t>(bits));
    const uint16_t back = GetParam().narrow(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(GetParam().widen(back))) << std::hex << bits;
    } else {
      ASSERT_EQ(back, bits) << std::hex << bits;
    }
  }
}

TEST_P(Numeric, NaNOfLowBitsStaysNaN) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7f80ffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(GetParam().widen(GetParam().narrow(nan)))) << std::hex << bits;
  }
}

TEST_P(Numeric, RoundsMidpointsToEvenAndTheirNeighboursToTheNearest) {
  const uint32_t infinity = ((1u << GetParam().exponent_bits) - 1) << GetParam().mantissa_bits;
  for (uint32_t sign = 0; sign <= 0x8000u; sign += 0x8000u) {
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = defined_value(GetParam(), sign | bits);
      const double high = defined_value(GetParam(), sign | (bits + 1));
      const auto middle = static_cast<float>(0.5 * (low + high));
      const auto toward = [&](double end) {
        return std::nextafter(middle, static_cast<float>(end));
      };
      ASSERT_EQ(GetParam().narrow(middle), sign | (bits + (bits & 1u))) << std::hex << bits;
      ASSERT_EQ(GetParam().narrow(toward(low)), sign | bits) << std::hex << bits;
      ASSERT_EQ(GetParam().narrow(toward(high)), sign | (bits + 1)) << std::hex << bits;
    }
  }
}

TEST_P(Numeric, OverflowsToInfinityFromHalfAnUlpPastTheLargest) {
  const uint32_t infinity = ((1u << GetParam().exponent_bits) - 1) << GetParam().mantissa_bits;
  const double largest = defined_value(GetParam(), infinity - 1);
  const double ulp = largest - defined_value(GetParam(), infinity - 2);
  const auto limit = static_cast<float>(largest + 0.5 * ulp);
  EXPECT_EQ(GetParam().narrow(limit), infinity);
  EXPECT_EQ(GetParam().narrow(std::nextafter(limit, 0.0f)), infinity - 1);
  EXPECT_EQ(GetParam().narrow(-limit), 0x8000u | infinity);
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::infinity()), infinity);
}

// A double just beside a midpoint: rounding to float first would land on the midpoint and then
// round the wrong way.
TEST_P(Numeric, DoublesRoundOnceThroughOdd) {
  const uint32_t infinity = ((1u << GetParam().exponent_bits) - 1) << GetParam().mantissa_bits;
  for (uint32_t sign = 0; sign <= 0x8000u; sign += 0x8000u) {
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = defined_value(GetParam(), sign | bits);
      const double high = defined_value(GetParam(), sign | (bits + 1));
      const double middle = 0.5 * (low + high);
      const auto narrow = [](double value) {
        return GetParam().narrow(float_to_odd_from_double(value));
      };
      ASSERT_EQ(narrow(middle), sign | (bits + (bits & 1u))) << std::hex << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, low)), sign | bits) << std::hex << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, high)), sign | (bits + 1)) << std::hex << bits;
    }
  }
}

TEST(NumericOdd, KeepsFloatsNaNAndInfinity) {
  for (const float value : {0.0f, -0.0f, 1.5f, -3e38f, 1e-45f}) {
    EXPECT_EQ(float_to_odd_from_double(static_cast<double>(value)), value);
  }
  EXPECT_TRUE(std::isnan(float_to_odd_from_double(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isinf(float_to_odd_from_double(-std::numeric_limits<double>::infinity())));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Numeric,
    ::testing::Values(Format{"bfloat16", 8, 7, float_from_bfloat16, bfloat16_from_float},
                      Format{"float16", 5, 10, float_from_float16, float16_from_float}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace sluice::core
