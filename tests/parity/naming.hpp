// Names table cases by words and numbers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_NAMING_HPP_
#define SLUICE_TESTS_PARITY_NAMING_HPP_

#include <sstream>
#include <string>

namespace sluice::check {

/// The parts one after the other; names must consist of letters, digits and underscores.
template <class... Part>
std::string named(const Part&... parts) {
  std::ostringstream name;
  (name << ... << parts);
  return name.str();
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_NAMING_HPP_
