// Applies the affine map of a piece of a sequence to columns of a state: out = addend + M in.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_AFFINE_STEP_CUH_
#define SLUICE_CUDA_DEVICE_AFFINE_STEP_CUH_

#include "cuda/device/store.cuh"

namespace sluice::cuda::device {

/// Threads of a CTA: 128 rows by two halves of the columns.
inline constexpr int kAffineThreads = 256;
/// Columns that a CTA carries, and how many of them a thread has.
inline constexpr int kAffineColumns = 16;
inline constexpr int kAffineOwn = kAffineColumns / 2;
inline constexpr int kAffineRows = 128, kAffineTerms = 32;

/// K rows of kAffineColumns numbers, in shared memory.
using AffineColumns = float (*)[kAffineColumns];

/// M as it lies in memory: by rows, or its columns one after the other.
struct AffineMatrix {
  const float* data;
  bool by_columns;
};

/// A part of M. PERF a padded row: 32 rows of a column are in 32 banks.
struct AffineTile {
  float M[kAffineRows][kAffineTerms + 1];
};

/// Brings rows `row`.. and terms `term`.. of M to shared memory, zeros past K.
__device__ __forceinline__ void load_affine_tile(const AffineMatrix& M, int K, int row, int term,
                                                 AffineTile& tile) {
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < kAffineRows * kAffineTerms;
       at += kAffineThreads) {
    const int r = M.by_columns ? at % kAffineRows : at / kAffineTerms;
    const int c = M.by_columns ? at / kAffineRows : at % kAffineTerms;
    const bool inside = row + r < K && term + c < K;
    const int64_t from =
        M.by_columns ? int64_t{term + c} * K + row + r : int64_t{row + r} * K + term + c;
    tile.M[r][c] = inside ? M.data[from] : 0.0f;
  }
}

/// out += M in. All threads of the CTA; what they wrote to in and out must be visible. NUM: terms in
/// ascending order on top of what out holds, one fused multiply-add each.
__device__ __forceinline__ void add_affine(const AffineMatrix& M, int K, AffineColumns in,
                                           AffineColumns out, AffineTile& tile) {
  const int r = static_cast<int>(threadIdx.x) % kAffineRows;
  const int first = static_cast<int>(threadIdx.x) / kAffineRows * kAffineOwn;
  for (int row = 0; row < K; row += kAffineRows) {
    const bool inside = row + r < K;
    float sum[kAffineOwn];
#pragma unroll
    for (int j = 0; j < kAffineOwn; ++j) sum[j] = inside ? out[row + r][first + j] : 0.0f;
    for (int term = 0; term < K; term += kAffineTerms) {
      __syncthreads();
      load_affine_tile(M, K, row, term, tile);
      __syncthreads();
      const int terms = min(K - term, kAffineTerms);
#pragma unroll 8
      for (int l = 0; l < terms; ++l) {
        const float m = tile.M[r][l];
#pragma unroll
        for (int j = 0; j < kAffineOwn; ++j) sum[j] = fmaf(m, in[term + l][first + j], sum[j]);
      }
    }
    if (!inside) continue;
#pragma unroll
    for (int j = 0; j < kAffineOwn; ++j) out[row + r][first + j] = sum[j];
  }
  __syncthreads();
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_AFFINE_STEP_CUH_
