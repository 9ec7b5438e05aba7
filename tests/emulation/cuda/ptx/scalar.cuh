// Emulates src/cuda/ptx/scalar.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SCALAR_CUH_
#define SLUICE_CUDA_PTX_SCALAR_CUH_

#include <cstdint>
#include <cstring>

namespace sluice::cuda::ptx {

struct EitherBits {
  uint32_t wide, narrow;
};

/// The register that does not count holds no zero: a reader of the wrong one is to be seen.
inline EitherBits load_either(bool is_there, const void* address, bool has_32) {
  uint32_t bits = 0;
  if (is_there) std::memcpy(&bits, address, has_32 ? 4 : 2);
  return has_32 ? EitherBits{bits, 0x7fff} : EitherBits{0x7fffffff, bits};
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SCALAR_CUH_
