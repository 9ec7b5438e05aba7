// Emulates src/cuda/ptx/address.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ADDRESS_CUH_
#define SLUICE_CUDA_PTX_ADDRESS_CUH_

#include <cstdint>
#include <cstdlib>

namespace sluice::cuda::ptx {

template <class T>
void advance(T*& address, int64_t bytes) {
  address += bytes / static_cast<int64_t>(sizeof(T));
}

/// An address that is not aligned ends the program.
inline void store_16(void* address, const uint4& x) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) std::abort();
  *static_cast<uint4*>(address) = x;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ADDRESS_CUH_
