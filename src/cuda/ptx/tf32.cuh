// Products of float32 numbers that are rounded to tf32: mma.m16n8k8 (PTX ISA 9.7.14.5.6).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_TF32_CUH_
#define SLUICE_CUDA_PTX_TF32_CUH_

#include <cstdint>

namespace sluice::cuda::ptx {

/// D[16,8] += A[16,8] B[8,8], tf32 operands (the low 13 bits of a word do not count), float32
/// accumulator.
__device__ __forceinline__ void mma_tf32(float* d, const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_TF32_CUH_
