// Runs solve_tril: the inverse of a unit triangle, any dtype and stride, float32 inside.
//
// Math      X = (I + A)^-1: tile/triangle.cuh. Upper: rows and columns turned around, which makes A a
//           lower triangle.
// Roles     a CTA of 128 threads has one matrix of C x C
// Memory    dynamic shared memory: the matrix, where X replaces A
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/inverse.cuh"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::StageParams;

/// The upper triangle of A as a lower one; rows past the chunk's tokens are zeros.
template <int C>
__device__ __forceinline__ void load_upper(const StageParams& p, const Chunk& chunk, int64_t head,
                                           Triangle<C>& X) {
  const int n = chunk.tokens;
#pragma unroll 4
  for (auto e = static_cast<int>(threadIdx.x); e < C * C; e += kSolveThreads) {
    const int i = e / C, j = e % C;
    if (j >= i) continue;
    const int64_t row = at(p.A, chunk.batch, chunk.row + n - 1 - i, head);
    *X.at(i, j) = i < n ? device::load_number(p.A.data, row + n - 1 - j, p.A.number) : 0.0f;
  }
}
template <int C>
__device__ __forceinline__ void store_upper(const StageParams& p, const Chunk& chunk, int64_t head,
                                            const Triangle<C>& X) {
  const int n = chunk.tokens;
#pragma unroll 4
  for (auto e = static_cast<int>(threadIdx.x); e < n * C; e += kSolveThreads) {
    const int row = e / C, column = e % C;
    const bool inside = column >= row && column < n;
    const int64_t to = at(p.A_inverse, chunk.batch, chunk.row + row, head) + column;
    device::store_number(p.A_inverse.data, to, p.A_inverse.number,
                         inside ? *X.at(n - 1 - row, n - 1 - column) : 0.0f);
  }
}

/// CTAs of smaller matrices on a multiprocessor, which is a limit to registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kSolvers = 5;
#else
inline constexpr int kSolvers = 8;
#endif

/// Items are slots x heads.
template <int C>
__global__ void __launch_bounds__(kSolveThreads, C == 128 ? 3 : kSolvers)
    solve_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& X = *reinterpret_cast<Triangle<C>*>(dynamic_shared);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    if (p.upper) {
      load_upper<C>(p, chunk, head, X);
    } else {
      load_lower<C, kSolveThreads>(p, chunk, head, X);
    }
    __syncthreads();
    invert_triangle<C, kSolveThreads>(X);
    if (p.upper) {
      store_upper<C>(p, chunk, head, X);
    } else {
      store_lower<C, kSolveThreads>(p, chunk, head, X);
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_
