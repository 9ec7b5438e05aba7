// Inverts a unit lower triangle in shared memory, by a CTA of kThreads threads, 128 or
// more.
//
// Math      X = (I + A)^-1 of a strict lower A: 16x16 blocks on the diagonal by substitution, then
//           blocks of b = 16, 32, 64 pair up: X21 = -X22 (A21 X11)
// Roles     substitution: a thread has a column of a block; products: a warp has 8 columns of X21
//           at a time, so that a product's result is a term of the next one in the same warp
// Memory    C rows of C + 8 floats: X replaces A. P = A21 X11 lies where the pair has its zeros
// Numbers   NUM: products are mma of tf32, operands in two parts of 11 bits each, three of the four
//           products of parts: 2^-22 of a term, as float32 has 2^-24 a rounding. Whole numbers
//           below 2^22 are exact, and so is the inverse of ones.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_TRIANGLE_CUH_
#define SLUICE_CUDA_TILE_TRIANGLE_CUH_

#include <cstdint>

#include "cuda/ptx/matrix.cuh"

namespace sluice::cuda::tile {

inline constexpr int kTrianglePadding = 8;  ///< floats of a row past the matrix
inline constexpr int kTriangleBlock = 16;   ///< rows of a block on the diagonal

/// WHY 8 more floats: pairs of numbers of eight rows are then in banks of their own.
template <int C>
struct Triangle {
  static constexpr int kStride = C + kTrianglePadding;
  float x[C * kStride];
  __device__ __forceinline__ float* at(int i, int j) { return x + i * kStride + j; }
  __device__ __forceinline__ const float* at(int i, int j) const { return x + i * kStride + j; }
};

// ---------------------------------------------------------------------------- diagonal ----

/// Inverts the blocks on the diagonal in place. Of A the strict triangle is read; all of a block is
/// written.
template <int C>
__device__ __forceinline__ void invert_diagonal(Triangle<C>& X) {
  constexpr int kBlock = kTriangleBlock;
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = thread / kBlock * kBlock, j = thread % kBlock;
  float x[kBlock];
  if (thread < C) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      float sum = i == j ? 1.0f : 0.0f;
#pragma unroll
      for (int l = 0; l < i; l += 4) {
        const float4 a = *reinterpret_cast<const float4*>(X.at(first + i, first + l));
        const float row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int m = 0; m < 4 && l + m < i; ++m) sum = fmaf(-row[m], x[l + m], sum);
      }
      x[i] = i < j ? 0.0f : sum;
    }
  }
  __syncthreads();
  if (thread < C) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) *X.at(first + i, first + j) = x[i];
  }
  __syncthreads();
}

// ---------------------------------------------------------------------------- products ----

/// x = high + low, each with the 11 bits of tf32. NUM: rounded half up, which costs an addition.
__device__ __forceinline__ void tf32_halves(float x, uint32_t* high, uint32_t* low) {
  constexpr uint32_t kHalf = 0x1000u, kKept = 0xffffe000u;
  *high = (__float_as_uint(x) + kHalf) & kKept;
  *low = __float_as_uint(x - __uint_as_float(*high)) + kHalf;
}

/// d += A B of operands in two parts.
struct LeftNumbers {
  uint32_t high[4], low[4];
};
struct RightNumbers {
  uint32_t high[2], low[2];
};
__device__ __forceinline__ void multiply_numbers(float (&d)[4], const LeftNumbers& a,
                                                 const RightNumbers& b) {
  ptx::mma_tf32(d, a.high, b.low);
  ptx::mma_tf32(d, a.low, b.high);
  ptx::mma_tf32(d, a.high, b.high);
}

/// Rows row .. row + 15 and terms term .. term + 7. WHY a lane has terms 2 q and 2 q + 1, not q and
/// q + 4: they come as pairs, and a sum of products knows no order if both operands have the same.
template <int C>
__device__ __forceinline__ LeftNumbers load_left_numbers(const Triangle<C>& X, int row, int term) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  LeftNumbers a;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 pair =
        *reinterpret_cast<const float2*>(X.at(row + 8 * half + lane / 4, term + lane % 4 * 2));
    tf32_halves(pair.x, a.high + half, a.low + half);
    tf32_halves(pair.y, a.high + 2 + half, a.low + 2 + half);
  }
  return a;
}
template <int C>
__device__ __forceinline__ RightNumbers load_right_numbers(const Triangle<C>& X, int term,
                                                           int column) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  RightNumbers b;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    tf32_halves(*X.at(term + lane % 4 * 2 + i, column + lane / 4), b.high + i, b.low + i);
  }
  return b;
}

/// 16 rows and 8 columns of a result, times sign.
template <int C>
__device__ __forceinline__ void store_numbers(Triangle<C>& X, int row, int column, float sign,
                                              const float (&d)[4]) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  float* const to = X.at(row + lane / 4, column + lane % 4 * 2);
  *reinterpret_cast<float2*>(to) = {sign * d[0], sign * d[1]};
  *reinterpret_cast<float2*>(to + 8 * Triangle<C>::kStride) = {sign * d[2], sign * d[3]};
}

// ------------------------------------------------------------------------------- merge ----

/// X22 (A21 X11) of 8 columns from `column` on, of a pair whose first row and column is `corner`.
template <int C, int kBlock>
__device__ __forceinline__ void multiply_pair(Triangle<C>& X, int corner, int column,
                                              float (&out)[kBlock / 16][4]) {
  constexpr int kTiles = kBlock / 16;
  const int lower = corner + kBlock;
  float P[kTiles][4] = {};
  // X11 is zero above its diagonal, and other numbers may lie there.
#pragma unroll 2
  for (int term = column; term < kBlock; term += 8) {
    const RightNumbers b = load_right_numbers(X, corner + term, corner + column);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      multiply_numbers(P[m], load_left_numbers(X, lower + 16 * m, corner + term), b);
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    store_numbers(X, corner + 16 * m, lower + column, 1.0f, P[m]);
#pragma unroll
    for (float& x : out[m]) x = 0.0f;
  }
  __syncwarp();
#pragma unroll
  for (int term = 0; term < kBlock; term += 8) {
    const RightNumbers b = load_right_numbers(X, corner + term, lower + column);
#pragma unroll
    for (int m = term / 16; m < kTiles; ++m) {
      multiply_numbers(out[m], load_left_numbers(X, lower + 16 * m, lower + term), b);
    }
  }
}

/// X21 = -X22 (A21 X11) of all pairs of inverted blocks.
template <int C, int kBlock, int kThreads>
__device__ __forceinline__ void merge_blocks(Triangle<C>& X) {
  constexpr int kWarps = kThreads / 32, kEach = kBlock / 8;  // columns of 8 in a pair
  constexpr int kItems = C / (2 * kBlock) * kEach, kTurns = (kItems + kWarps - 1) / kWarps;
  float out[kTurns][kBlock / 16][4];
  const auto item = [](int turn) { return static_cast<int>(threadIdx.x / 32) + turn * kWarps; };
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    if (item(turn) >= kItems) continue;
    multiply_pair<C, kBlock>(X, item(turn) / kEach * 2 * kBlock, item(turn) % kEach * 8, out[turn]);
  }
  __syncthreads();  // SYNC: nobody reads A21
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    if (item(turn) >= kItems) continue;
    const int corner = item(turn) / kEach * 2 * kBlock, column = item(turn) % kEach * 8;
#pragma unroll
    for (int m = 0; m < kBlock / 16; ++m) {
      store_numbers(X, corner + kBlock + 16 * m, corner + column, -1.0f, out[turn][m]);
    }
  }
  __syncthreads();
}

/// Replaces a strict lower triangle, which all threads see, by the inverse. What lies above the
/// blocks on the diagonal is undefined afterwards.
template <int C, int kThreads>
__device__ __forceinline__ void invert_triangle(Triangle<C>& X) {
  static_assert(kThreads >= C);
  invert_diagonal<C>(X);
  if constexpr (C >= 32) merge_blocks<C, 16, kThreads>(X);
  if constexpr (C >= 64) merge_blocks<C, 32, kThreads>(X);
  if constexpr (C >= 128) merge_blocks<C, 64, kThreads>(X);
}

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_TRIANGLE_CUH_
