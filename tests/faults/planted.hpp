// Says which planted fault is on: the one that SLUICE_FAULT names. Included by mutated files alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_FAULTS_PLANTED_HPP_
#define SLUICE_TESTS_FAULTS_PLANTED_HPP_

#include <cstdint>
#include <cstdlib>

namespace sluice::faults {

/// FNV-1a, as plant.py has it.
inline uint32_t number_of(const char* name) noexcept {
  uint32_t number = 2166136261u;
  for (; name != nullptr && *name != 0; ++name) {
    number = (number ^ static_cast<unsigned char>(*name)) * 16777619u;
  }
  return number;
}

inline const uint32_t planted = number_of(std::getenv("SLUICE_FAULT"));

}  // namespace sluice::faults

#endif  // SLUICE_TESTS_FAULTS_PLANTED_HPP_
