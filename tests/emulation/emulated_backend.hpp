// Choices of the emulated backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_

#include <cstdint>

namespace sluice::cuda {
/// Of the schedule of the next calls.
extern uint64_t emulation_seed;
}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
