// solve_tril: the inverse of a unit triangle, in float32.
//
// Math      X = (I + A)^-1 of a strict lower A: 16x16 blocks on the diagonal by substitution, then
//           blocks of b = 16, 32, 64 pair up: X21 = -X22 (A21 X11). Upper: rows and columns turned
//           around, which makes A a lower one.
// Roles     a CTA of 128 threads has one matrix
// Memory    dynamic shared memory: the matrix, where X replaces A, and half of one, b x b
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/kernels/stages/work.cuh"

namespace sluice::cuda::stages {

/// A matrix of float32 in shared memory.
struct SolveMatrix {
  float* data;
  int width;  ///< elements from row to row
  __device__ __forceinline__ float& operator()(int i, int j) const { return data[i * width + j]; }
};

/// The lower triangle of A within n tokens; zeros elsewhere.
__device__ __forceinline__ void load_triangle(const StageParams& p, const Chunk& chunk,
                                              int64_t head, const SolveMatrix& X) {
  const int n = chunk.tokens, C = p.C;
#pragma unroll 4
  for (auto e = static_cast<int>(threadIdx.x); e < C * C; e += kSolveThreads) {
    const int row = e / C, column = e % C;  // in memory
    const bool inside = row < n && column < n && (p.upper ? column > row : column < row);
    const int i = p.upper ? n - 1 - row : row, j = p.upper ? n - 1 - column : column;
    if (inside) {
      const int64_t from = at(p.A, chunk.batch, chunk.row + row, head) + column;
      X(i, j) = device::load_number(p.A.data, from, p.A.number);
    } else if (row >= n || column >= n) {
      X(row, column) = 0.0f;
    } else {
      X(i, j) = 0.0f;
    }
  }
}

/// Inverts the blocks on the diagonal in place: column j of a block is one thread's. X starts as a
/// strict triangle and becomes a whole one.
__device__ __forceinline__ void invert_diagonal(const SolveMatrix& X, int C) {
  constexpr int kBlock = kSolveBlock;
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = thread / kBlock * kBlock, j = thread % kBlock;
  float x[kBlock];
  if (thread < C) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      float sum = i == j ? 1.0f : 0.0f;
#pragma unroll
      for (int l = 0; l < i; ++l) sum = fmaf(-X(first + i, first + l), x[l], sum);
      x[i] = i < j ? 0.0f : sum;
    }
  }
  __syncthreads();
  if (thread < C) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) X(first + i, first + j) = x[i];
  }
  __syncthreads();
}

/// out = sign * L R of size b, where the terms of (i, j) are l in [from, to). All threads; a thread
/// has four rows and four columns at a time, each 1/4 b apart.
template <class Left, class Right, class Store>
__device__ __forceinline__ void multiply_blocks(int b, int tiles, const Left& left,
                                                const Right& right, const Store& store) {
  const int side = b / 4;
#pragma unroll 1
  for (auto e = static_cast<int>(threadIdx.x); e < tiles * side * side; e += kSolveThreads) {
    const int tile = e / (side * side), i = e / side % side, j = e % side;
    float sum[4][4] = {};
#pragma unroll 4
    for (int l = 0; l < b; ++l) {
      float x[4], y[4];
#pragma unroll
      for (int a = 0; a < 4; ++a)
        x[a] = left(tile, i + a * side, l), y[a] = right(tile, l, j + a * side);
#pragma unroll
      for (int a = 0; a < 4; ++a) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[a][c] = fmaf(x[a], y[c], sum[a][c]);
      }
    }
#pragma unroll
    for (int a = 0; a < 4; ++a) {
#pragma unroll
      for (int c = 0; c < 4; ++c) store(tile, i + a * side, j + c * side, sum[a][c]);
    }
  }
}

/// X21 = -X22 (A21 X11) for all pairs of inverted blocks of size b.
__device__ __forceinline__ void merge_blocks(const SolveMatrix& X, float* scratch, int C, int b) {
  const int pairs = C / (2 * b);
  const auto product = [&](int tile, int i, int j) -> float& {
    return scratch[tile * b * (b + 1) + i * (b + 1) + j];
  };
  multiply_blocks(
      b, pairs, [&](int t, int i, int l) { return X((2 * t + 1) * b + i, 2 * t * b + l); },
      [&](int t, int l, int j) { return X(2 * t * b + l, 2 * t * b + j); },
      [&](int t, int i, int j, float x) { product(t, i, j) = x; });
  __syncthreads();
  multiply_blocks(
      b, pairs, [&](int t, int i, int l) { return X((2 * t + 1) * b + i, (2 * t + 1) * b + l); },
      [&](int t, int l, int j) { return product(t, l, j); },
      [&](int t, int i, int j, float x) { X((2 * t + 1) * b + i, 2 * t * b + j) = -x; });
  __syncthreads();
}

/// All C columns of the chunk's rows.
__device__ __forceinline__ void store_inverse(const StageParams& p, const Chunk& chunk,
                                              int64_t head, const SolveMatrix& X) {
  const int n = chunk.tokens, C = p.C;
#pragma unroll 4
  for (auto e = static_cast<int>(threadIdx.x); e < n * C; e += kSolveThreads) {
    const int row = e / C, column = e % C;
    float x = 0.0f;
    if (column < n && (p.upper ? column >= row : column <= row)) {
      x = p.upper ? X(n - 1 - row, n - 1 - column) : X(row, column);
    }
    const int64_t to = at(p.A_inverse, chunk.batch, chunk.row + row, head) + column;
    device::store_number(p.A_inverse.data, to, p.A_inverse.number, x);
  }
}

/// Items are slots x heads.
__global__ void __launch_bounds__(kSolveThreads)
    solve_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const SolveMatrix X{reinterpret_cast<float*>(dynamic_shared), p.C + 1};
  float* const scratch = X.data + p.C * (p.C + 1);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    load_triangle(p, chunk, head, X);
    __syncthreads();
    invert_diagonal(X, p.C);
    for (int b = kSolveBlock; b < p.C; b *= 2) merge_blocks(X, scratch, p.C, b);
    store_inverse(p, chunk, head, X);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_SOLVE_CUH_
