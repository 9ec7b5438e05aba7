// Moves addresses, and stores through them (PTX ISA 9.7.1.1, 9.7.9.11).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ADDRESS_CUH_
#define SLUICE_CUDA_PTX_ADDRESS_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// Moves an address by a number of bytes. WHY an instruction: in an unrolled loop the compiler
/// would keep all multiples of a stride in registers, 16 of them, instead of adding it.
template <class T>
__device__ __forceinline__ void advance(T*& address, int64_t bytes) {
  asm("add.s64 %0, %0, %1;" : "+l"(address) : "l"(bytes));
}

/// Stores 16 bytes at an aligned global address. WHY an instruction: the compiler does not know of
/// an address that advance() moved that it is global.
__device__ __forceinline__ void store_16(void* address, const uint4& x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ADDRESS_CUH_
