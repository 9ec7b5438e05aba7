// Emulates src/cuda/ptx/scalar.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SCALAR_CUH_
#define SLUICE_CUDA_PTX_SCALAR_CUH_

#include <cstdint>
#include <cstring>

namespace sluice::cuda::ptx {

inline uint32_t load_bits(const void* address, bool has_32) {
  uint32_t bits = 0;
  std::memcpy(&bits, address, has_32 ? 4 : 2);
  return bits;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SCALAR_CUH_
