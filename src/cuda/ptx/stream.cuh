// Loads and stores widely what nobody will ask for again soon (PTX ISA 9.7.9.8, 9.7.9.11,
// 9.7.9.17): past the L1, first to leave the L2. Loads single numbers, of a width known at run time.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_STREAM_CUH_
#define SLUICE_CUDA_PTX_STREAM_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// How the L2 treats an access: what weights leave of it goes first.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The opposite, until another access says otherwise.
__device__ __forceinline__ uint64_t evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// 16 bytes at a 16-byte aligned global address.
__device__ __forceinline__ void load_stream_16(uint32_t (&r)[4], const void* address,
                                               uint64_t policy) {
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "l"(address), "l"(policy)
               : "memory");
}

/// 8 bytes at an 8-byte aligned global address; words from r[2] on stay.
template <int kWords>
__device__ __forceinline__ void load_stream_8(uint32_t (&r)[kWords], const void* address,
                                              uint64_t policy) {
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
               : "=r"(r[0]), "=r"(r[1])
               : "l"(address), "l"(policy)
               : "memory");
}

__device__ __forceinline__ void store_stream_16(void* address, const uint32_t (&r)[4],
                                                uint64_t policy) {
  asm volatile(
      "st.global.L1::no_allocate.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void store_stream_8(void* address, const uint32_t (&r)[2],
                                               uint64_t policy) {
  asm volatile("st.global.L1::no_allocate.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;" ::"l"(address),
               "r"(r[0]), "r"(r[1]), "l"(policy)
               : "memory");
}

/// Asks the L2 for the 32 bytes around a global address (PTX ISA 9.7.9.15). The L2 is where all
/// writes meet, so that no later load can see less of them.
__device__ __forceinline__ void prefetch_sector(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

/// An integer that another kernel may be writing: from the L2, old or new; the L1 keeps nothing.
__device__ __forceinline__ int64_t peek_64(const void* address) {
  int64_t x;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(x) : "l"(address) : "memory");
  return x;
}
__device__ __forceinline__ int32_t peek_32(const void* address) {
  int32_t x;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}

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

#endif  // SLUICE_CUDA_PTX_STREAM_CUH_
