// Holds what the plain kernels of chunk_backward share: operands of products, sums over tile rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_ROWS_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/plain_products.cuh"
#include "cuda/kernels/backward/gates.cuh"

namespace sluice::cuda::backward {

using device::at, device::Chunk, device::Inner, device::kPlainColumns, device::multiply_plain;
using device::PlainOperands, device::PlainPart, device::store_tile, device::TokenNumbers;

static_assert(kTokens == device::kPlainRows && 2 * kPlainColumns == kTokens);

/// A square of token by token; a column more, so that columns lie in different banks.
using Square = float[kTokens][kTokens + 1];

/// Elements of rows of tokens of one head; zeros past the chunk and past the last column.
struct ChunkRows {
  TokenRows view;
  int64_t start, columns;
  int tokens;
  __device__ __forceinline__ float operator()(int token, int64_t column) const {
    if (token >= tokens) return 0.0f;
    return device::row_number(view, start + token * view.token_stride, column, columns);
  }
  /// The same of rows that this kernel writes.
  __device__ __forceinline__ float written(int token, int64_t column) const {
    if (token >= tokens || column >= columns) return 0.0f;
    return device::load_written(view.data, start + token * view.token_stride + column, view.number);
  }
};
__device__ __forceinline__ ChunkRows chunk_rows(const TokenRows& view, const Chunk& chunk,
                                                int64_t head, int64_t columns) {
  return {view, at(view, chunk.batch, chunk.row, head), columns, chunk.tokens};
}

/// Elements of a state [K,V] or [V,K] in float32; zeros past K and V.
struct StateElements {
  const float* data;
  int64_t row_step, column_step, K, V;
  __device__ __forceinline__ float operator()(int64_t k, int64_t v) const {
    return k < K && v < V ? __ldg(data + k * row_step + v * column_step) : 0.0f;
  }
};
__device__ __forceinline__ StateElements state_elements(const StageParams& p,
                                                        const ChunkStates& states, int64_t offset) {
  return {static_cast<const float*>(states.data) + offset, p.row_step, p.column_step, p.K, p.V};
}

/// x over the 16 threads that share rows of a tile: all of them get the sum, in one order.
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// Sums of rows of tiles, in the threads that have them.
struct RowSums {
  float x[4] = {};
  /// Adds number(row, column, a, b) of the thread's eight; a and b index its part.
  template <class Number>
  __device__ __forceinline__ void add(const Number& number) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
#pragma unroll
      for (int b = 0; b < 2; ++b) x[a] += number(PlainPart::row(a), PlainPart::column(b), a, b);
    }
  }
  /// to[row] += sign * the sum. All threads.
  __device__ __forceinline__ void add_to(float (&to)[kTokens], float sign) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const float sum = row_sum(x[a]);
      if (threadIdx.x % 16 == 0) to[PlainPart::row(a)] += sign * sum;
    }
  }
};

/// Chunks and heads are items of CTAs; packed calls have empty slots.
__device__ __forceinline__ int64_t entry_of(const StageParams& p, const Chunk& chunk,
                                            int64_t head) {
  return device::state_at(p, chunk, device::chunks_before(p, chunk.seq), head);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_ROWS_CUH_
