// Issues asynchronous warpgroup matrix products and orders them (PTX ISA 9.7.15.5, 9.7.15.7), with the
// register fences that keep the compiler from moving accumulator accesses across them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_CUH_
#define SLUICE_CUDA_PTX_WGMMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sluice::cuda::ptx {

/// How an operand of 16-bit numbers in shared memory lies: its reduction runs along the rows, or down
/// the columns.
enum class Major { kK, kMn };

// An instruction's operands by N: the numbers of D, which come first, and what PTX calls them.
#define SLUICE_D_8(d, i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SLUICE_D_32(d, i) \
  SLUICE_D_8(d, i), SLUICE_D_8(d, i + 8), SLUICE_D_8(d, i + 16), SLUICE_D_8(d, i + 24)
#define SLUICE_NUMBERS_64(d) SLUICE_D_32(d, 0)
#define SLUICE_NUMBERS_128(d) SLUICE_D_32(d, 0), SLUICE_D_32(d, 32)
#define SLUICE_NAMES_64                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SLUICE_NAMES_128                                                               \
  SLUICE_NAMES_64                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// One instruction: D (+)= A B, by names of the operands behind D, whose last one but majors is whether it adds.
#define SLUICE_WGMMA_OF(type, n, adds, operands, ...)                          \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " adds                           \
               ", 0;\n"                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
               " {" SLUICE_NAMES_##n "}, " operands ";}\n"                     \
               : SLUICE_NUMBERS_##n(d)                                         \
               : __VA_ARGS__)
#define SLUICE_WGMMA(n, ...)                  \
  if constexpr (std::is_same_v<Io, __half>) { \
    SLUICE_WGMMA_OF("f16", n, __VA_ARGS__);   \
  } else {                                    \
    SLUICE_WGMMA_OF("bf16", n, __VA_ARGS__);  \
  }

/// D[64,N] (+)= A[64,16] B[16,N], N twice the size of d: A is four registers from a[kA] on, D float32.
template <int kA, Major kMajorB, class Io, size_t kSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs(Io, float (&d)[kSize], const uint32_t (&a)[kASize],
                                         uint64_t b, int accumulate) {
  static_assert((kSize == 32 || kSize == 64) && kA + 4 <= kASize);
  if constexpr (kSize == 32) {
    SLUICE_WGMMA(64, "%37", "{%32, %33, %34, %35}, %36, p, 1, 1, %38", "r"(a[kA]), "r"(a[kA + 1]),
                 "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate),
                 "n"(static_cast<int>(kMajorB)));
  } else {
    SLUICE_WGMMA(128, "%69", "{%64, %65, %66, %67}, %68, p, 1, 1, %70", "r"(a[kA]), "r"(a[kA + 1]),
                 "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate),
                 "n"(static_cast<int>(kMajorB)));
  }
}

/// Likewise with A in shared memory.
template <Major kMajorA, Major kMajorB, class Io, size_t kSize>
__device__ __forceinline__ void wgmma_ss(Io, float (&d)[kSize], uint64_t a, uint64_t b,
                                         int accumulate) {
  static_assert(kSize == 32 || kSize == 64);
  if constexpr (kSize == 32) {
    SLUICE_WGMMA(64, "%34", "%32, %33, p, 1, 1, %35, %36", "l"(a), "l"(b), "r"(accumulate),
                 "n"(static_cast<int>(kMajorA)), "n"(static_cast<int>(kMajorB)));
  } else {
    SLUICE_WGMMA(128, "%66", "%64, %65, p, 1, 1, %67, %68", "l"(a), "l"(b), "r"(accumulate),
                 "n"(static_cast<int>(kMajorA)), "n"(static_cast<int>(kMajorB)));
  }
}

#undef SLUICE_D_8
#undef SLUICE_D_32
#undef SLUICE_NUMBERS_64
#undef SLUICE_NUMBERS_128
#undef SLUICE_NAMES_64
#undef SLUICE_NAMES_128
#undef SLUICE_WGMMA_OF
#undef SLUICE_WGMMA

/// Orders this warpgroup's register accesses before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/// Closes a group of wgmma.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/// Waits until at most kPending of the newest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// Makes the compiler believe that the registers change here, so that no access moves across.
template <size_t kSize>
__device__ __forceinline__ void pin(float (&r)[kSize]) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

/// The same for packed operand fragments.
template <size_t kSize>
__device__ __forceinline__ void pin(uint32_t (&r)[kSize]) {
#pragma unroll
  for (size_t i = 0; i < kSize; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

/// setmaxnreg (PTX ISA 9.7.19.5): gives registers back. kCount is a multiple of 8 in [24, 256].
template <int kCount>
__device__ __forceinline__ void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kCount));
}

/// setmaxnreg: takes registers, waiting until the pool has them.
template <int kCount>
__device__ __forceinline__ void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kCount));
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_CUH_
