// Choices of the emulated decode backend, and what it did.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_DECODE_BACKEND_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_DECODE_BACKEND_HPP_

#include <cstdint>
#include <string>

namespace sluice::cuda {

struct DecodeEmulation {
  uint64_t seed = 1;        ///< of the schedule of the next calls
  int multiprocessors = 2;  ///< that the grid is planned for
  unsigned resident = 4;    ///< CTAs, or clusters, that run at a time
  bool late_slots = false;  ///< tables of read slots are right only once earlier launches ended
  int64_t launches = 0;     ///< so far
  int ctas_of_unit = 0;     ///< of the last launch
  std::string trouble;      ///< of the last launch
};
extern DecodeEmulation decode_emulation;

}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_DECODE_BACKEND_HPP_
