// Judges results of a replay buffer against the float64 reference.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_RING_JUDGE_HPP_
#define SLUICE_TESTS_PARITY_RING_JUDGE_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "support/case_runner.hpp"

namespace sluice::check {

/// Largest difference, in units of the largest number of `truth`. Rows past the last sequence are
/// not written, in neither.
inline double distance(const Array& found, const Array& truth) {
  double largest = 1e-30, difference = 0;
  EXPECT_EQ(found.shape, truth.shape);
  for (size_t i = 0; i < truth.values.size(); ++i) {
    if (std::isnan(found.values[i]) != std::isnan(truth.values[i])) return HUGE_VAL;
    if (std::isnan(truth.values[i])) continue;
    largest = std::max(largest, std::abs(truth.values[i]));
    difference = std::max(difference, std::abs(found.values[i] - truth.values[i]));
  }
  return difference / largest;
}

/// What float32 sums (`sums`) and so many roundings to a dtype may cost, in units of the largest
/// number.
inline double allowance_of(double sums, int roundings, std::initializer_list<sluice_dtype> dtypes) {
  double bound = sums;
  for (const sluice_dtype dtype : dtypes) {
    if (same_dtype(dtype, kBF16)) bound = std::max(bound, roundings * 8e-3);
    if (same_dtype(dtype, kF16)) bound = std::max(bound, roundings * 1e-3);
  }
  return bound;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_RING_JUDGE_HPP_
