// Choices of the emulated backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_

#include <cstdint>

#include "cuda/split.h"

namespace sluice::cuda {
/// Of the schedule of the next calls.
extern uint64_t emulation_seed;
/// Of the GPU that the planner plans for.
extern int emulated_multiprocessors;
/// What the environment would ask for.
extern SplitWish emulated_split;
}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_BACKEND_HPP_
