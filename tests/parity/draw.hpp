// Draws parts of a configuration at random, for every suite of random configurations.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_DRAW_HPP_
#define SLUICE_TESTS_PARITY_DRAW_HPP_

#include <initializer_list>
#include <vector>

#include "check/generate.hpp"
#include "parity/free_tensor.hpp"

namespace sluice::check {

template <class T>
T one_of(Random* random, std::initializer_list<T> values) {
  return *(values.begin() + pick(random, static_cast<int64_t>(values.size())));
}

/// Each of 0 .. count - 1 with a chance of 1 in `odds`.
inline std::vector<int64_t> some_of(Random* random, int64_t count, int64_t odds) {
  std::vector<int64_t> list;
  for (int64_t n = 0; n < count; ++n) {
    if (chance(random, odds)) list.push_back(n);
  }
  return list;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_DRAW_HPP_
