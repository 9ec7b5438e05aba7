// Loads single numbers whose width is known at run time (PTX ISA 9.7.9.8).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_SCALAR_CUH_
#define SLUICE_CUDA_PTX_SCALAR_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// 32 or 16 bits, each in a register of its own: which counts is the reader's to know.
struct EitherBits {
  uint32_t wide, narrow;
};

/// The 32 or 16 bits at a global address that nobody writes, where `is_there`; elsewhere 0, and no
/// load. PERF an instruction, which is where it stands: the compiler waits for a load at the end of a
/// branch on its width, and moves others down to their uses. Two registers: a load to the same one
/// waits until the first has arrived, even where predicates leave the second out.
__device__ __forceinline__ EitherBits load_either(bool is_there, const void* address, bool has_32) {
  EitherBits bits;
  asm volatile(
      "{.reg .pred there, wide, narrow;\n"
      "setp.ne.u32 there, %4, 0;\n"
      "setp.ne.and.u32 wide|narrow, %3, 0, there;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "@wide ld.global.nc.b32 %0, [%2];\n"
      "@narrow ld.global.nc.u16 %1, [%2];}\n"
      : "=r"(bits.wide), "=r"(bits.narrow)
      : "l"(address), "r"(static_cast<uint32_t>(has_32)), "r"(static_cast<uint32_t>(is_there)));
  return bits;
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_SCALAR_CUH_
