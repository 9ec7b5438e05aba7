// Issues warpgroup matrix products, one function per shape (PTX ISA 9.7.15.5, wgmma.mma_async).
// Written by gen_wgmma.py: edit that. D is float32 [64, N]; A and B are 16 bits wide.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_
#define SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace sluice::cuda::ptx {

/// D[64,64] (+)= A[64,16] B[16,64]; A in registers; B K-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n64(__nv_bfloat16, float (&d)[kDSize],
                                             const uint32_t (&a)[kASize], uint64_t b,
                                             int accumulate) {
  static_assert(kD + 32 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,64] (+)= A[64,16] B[16,64]; A in registers; B MN-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n64_mn(__nv_bfloat16, float (&d)[kDSize],
                                                const uint32_t (&a)[kASize], uint64_t b,
                                                int accumulate) {
  static_assert(kD + 32 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,128] (+)= A[64,16] B[16,128]; A in registers; B MN-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n128_mn(__nv_bfloat16, float (&d)[kDSize],
                                                 const uint32_t (&a)[kASize], uint64_t b,
                                                 int accumulate) {
  static_assert(kD + 64 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31]), "+f"(d[kD + 32]), "+f"(d[kD + 33]), "+f"(d[kD + 34]),
        "+f"(d[kD + 35]), "+f"(d[kD + 36]), "+f"(d[kD + 37]), "+f"(d[kD + 38]), "+f"(d[kD + 39]),
        "+f"(d[kD + 40]), "+f"(d[kD + 41]), "+f"(d[kD + 42]), "+f"(d[kD + 43]), "+f"(d[kD + 44]),
        "+f"(d[kD + 45]), "+f"(d[kD + 46]), "+f"(d[kD + 47]), "+f"(d[kD + 48]), "+f"(d[kD + 49]),
        "+f"(d[kD + 50]), "+f"(d[kD + 51]), "+f"(d[kD + 52]), "+f"(d[kD + 53]), "+f"(d[kD + 54]),
        "+f"(d[kD + 55]), "+f"(d[kD + 56]), "+f"(d[kD + 57]), "+f"(d[kD + 58]), "+f"(d[kD + 59]),
        "+f"(d[kD + 60]), "+f"(d[kD + 61]), "+f"(d[kD + 62]), "+f"(d[kD + 63])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,64] (+)= A[64,16] B[16,64]; A in shared memory, K-major; B K-major.
template <int kD, size_t kDSize>
__device__ __forceinline__ void wgmma_ss_n64(__nv_bfloat16, float (&d)[kDSize], uint64_t a,
                                             uint64_t b, int accumulate) {
  static_assert(kD + 32 <= kDSize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "l"(a), "l"(b), "r"(accumulate));
}

/// D[64,64] (+)= A[64,16] B[16,64]; A in registers; B K-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n64(__half, float (&d)[kDSize],
                                             const uint32_t (&a)[kASize], uint64_t b,
                                             int accumulate) {
  static_assert(kD + 32 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,64] (+)= A[64,16] B[16,64]; A in registers; B MN-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n64_mn(__half, float (&d)[kDSize],
                                                const uint32_t (&a)[kASize], uint64_t b,
                                                int accumulate) {
  static_assert(kD + 32 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,128] (+)= A[64,16] B[16,128]; A in registers; B MN-major.
template <int kD, int kA, size_t kDSize, size_t kASize>
__device__ __forceinline__ void wgmma_rs_n128_mn(__half, float (&d)[kDSize],
                                                 const uint32_t (&a)[kASize], uint64_t b,
                                                 int accumulate) {
  static_assert(kD + 64 <= kDSize && kA + 4 <= kASize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31]), "+f"(d[kD + 32]), "+f"(d[kD + 33]), "+f"(d[kD + 34]),
        "+f"(d[kD + 35]), "+f"(d[kD + 36]), "+f"(d[kD + 37]), "+f"(d[kD + 38]), "+f"(d[kD + 39]),
        "+f"(d[kD + 40]), "+f"(d[kD + 41]), "+f"(d[kD + 42]), "+f"(d[kD + 43]), "+f"(d[kD + 44]),
        "+f"(d[kD + 45]), "+f"(d[kD + 46]), "+f"(d[kD + 47]), "+f"(d[kD + 48]), "+f"(d[kD + 49]),
        "+f"(d[kD + 50]), "+f"(d[kD + 51]), "+f"(d[kD + 52]), "+f"(d[kD + 53]), "+f"(d[kD + 54]),
        "+f"(d[kD + 55]), "+f"(d[kD + 56]), "+f"(d[kD + 57]), "+f"(d[kD + 58]), "+f"(d[kD + 59]),
        "+f"(d[kD + 60]), "+f"(d[kD + 61]), "+f"(d[kD + 62]), "+f"(d[kD + 63])
      : "r"(a[kA + 0]), "r"(a[kA + 1]), "r"(a[kA + 2]), "r"(a[kA + 3]), "l"(b), "r"(accumulate));
}

/// D[64,64] (+)= A[64,16] B[16,64]; A in shared memory, K-major; B K-major.
template <int kD, size_t kDSize>
__device__ __forceinline__ void wgmma_ss_n64(__half, float (&d)[kDSize], uint64_t a, uint64_t b,
                                             int accumulate) {
  static_assert(kD + 32 <= kDSize);
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;}\n"
      : "+f"(d[kD + 0]), "+f"(d[kD + 1]), "+f"(d[kD + 2]), "+f"(d[kD + 3]), "+f"(d[kD + 4]),
        "+f"(d[kD + 5]), "+f"(d[kD + 6]), "+f"(d[kD + 7]), "+f"(d[kD + 8]), "+f"(d[kD + 9]),
        "+f"(d[kD + 10]), "+f"(d[kD + 11]), "+f"(d[kD + 12]), "+f"(d[kD + 13]), "+f"(d[kD + 14]),
        "+f"(d[kD + 15]), "+f"(d[kD + 16]), "+f"(d[kD + 17]), "+f"(d[kD + 18]), "+f"(d[kD + 19]),
        "+f"(d[kD + 20]), "+f"(d[kD + 21]), "+f"(d[kD + 22]), "+f"(d[kD + 23]), "+f"(d[kD + 24]),
        "+f"(d[kD + 25]), "+f"(d[kD + 26]), "+f"(d[kD + 27]), "+f"(d[kD + 28]), "+f"(d[kD + 29]),
        "+f"(d[kD + 30]), "+f"(d[kD + 31])
      : "l"(a), "l"(b), "r"(accumulate));
}
}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_SHAPES_CUH_
