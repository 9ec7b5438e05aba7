// Loads single numbers whose width is known at run time (PTX ISA 9.7.9.8).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SCALAR_CUH_
#define SLUICE_CUDA_PTX_SCALAR_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// The 32 or 16 bits at a global address that nobody writes. WHY an instruction: where the compiler
/// branches on the width it waits for the load at the branch's end, and not at its use.
__device__ __forceinline__ uint32_t load_bits(const void* address, bool has_32) {
  uint32_t bits;
  asm volatile(
      "{.reg .pred wide;\n"
      "setp.ne.u32 wide, %2, 0;\n"
      "@wide ld.global.nc.b32 %0, [%1];\n"
      "@!wide ld.global.nc.u16 %0, [%1];}\n"
      : "=r"(bits)
      : "l"(address), "r"(static_cast<uint32_t>(has_32)));
  return bits;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SCALAR_CUH_
