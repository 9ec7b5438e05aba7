// Runs the stages that are products of one chunk, in float32, any dtype and stride: scaled_dot_kkt
// (also as cumsum_kkt) and wy_fast.
//
// Math      A_ij = beta_i exp(G_i - G_j) (k_i . k_j), i > j
//           u = A_inverse diag(beta) v, w = A_inverse diag(beta exp G) k; key-wise gates: the decay
//           of each channel inside the product, w = A_inverse diag(beta) (exp(G) * k)
// Roles     a CTA of 256 threads has tiles of 64 rows and 32 columns of one (chunk, head); a thread
//           has four rows and two columns of a tile
// Memory    shared memory: 16 terms of both operands, the chunk's G and beta
// Floor     none: right comes first here, tensor cores have kernels of their own
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_PLAIN_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_PLAIN_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/plain_products.cuh"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::key_head, device::load_numbers;
using device::multiply_decayed_keys, device::multiply_keys, device::plain_wy, device::PlainMemory,
    device::PlainPart;
using device::row_number, device::StageParams, device::store_sums, device::store_tile;

/// Items are slots x heads.
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_kkt_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& [operands, numbers] = *reinterpret_cast<PlainMemory*>(dynamic_shared);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    load_numbers(p, chunk, head, numbers);
    store_sums(p, chunk, head, numbers);
    for (int row0 = 0; row0 < chunk.tokens; row0 += kPlainRows) {
      for (int column0 = 0; column0 < p.C; column0 += kPlainColumns) {
        PlainPart tile{};
        const bool below = column0 < row0 + kPlainRows;
        if (below && p.key_gates) {
          multiply_decayed_keys(p, operands, chunk, head, p.k, row0, column0, &tile);
        } else if (below) {
          multiply_keys(p, operands, chunk, key_head(p, head), p.k, row0, column0, &tile);
        }
        tile.for_each([&](int row, int column, float& x) {
          const int i = row0 + row, j = column0 + column;
          // WHY a choice: above the diagonal the exponential may be infinite.
          const bool inside = i > j && i < chunk.tokens;
          if (inside && !p.key_gates) x *= numbers.beta[i] * expf(numbers.G[i] - numbers.G[j]);
          x = !inside ? 0.0f : p.key_gates ? numbers.beta[i] * x : x;
        });
        store_tile(p.A, chunk, head, row0, column0, p.C, &tile);
      }
    }
    __syncthreads();
  }
}

/// Items are slots x heads.
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_wy_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& memory = *reinterpret_cast<PlainMemory*>(dynamic_shared);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0) continue;
    load_numbers(p, chunk, head, memory.numbers);
    plain_wy(p, memory, chunk, head, [&](int i, int term) {
      return row_number(p.A_inverse, at(p.A_inverse, chunk.batch, chunk.row + i, head), term, p.C);
    });
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_PLAIN_CUH_
