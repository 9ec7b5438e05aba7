// Tells where the emulated CTA's shared memory lies: the array that the prefill kernel declares.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_CUDA_SHARED_MEMORY_HPP_
#define SLUICE_TESTS_EMULATION_CUDA_SHARED_MEMORY_HPP_

#include <cstdint>

namespace sluice::cuda::chunk_forward {
extern uint8_t dynamic_shared[];
}

namespace emulation {
inline uint8_t* shared_memory() { return sluice::cuda::chunk_forward::dynamic_shared; }
}  // namespace emulation

#endif  // SLUICE_TESTS_EMULATION_CUDA_SHARED_MEMORY_HPP_
