// Moves triangles between rows of tokens and shared memory, where tile/triangle.cuh inverts them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_INVERSE_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_INVERSE_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/tile/triangle.cuh"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::Number, device::StageParams, device::TokenRows;
using tile::invert_triangle, tile::Triangle;
static_assert(kTrianglePadding == tile::kTrianglePadding);

/// Four numbers of a row; in one piece where that is aligned.
__device__ __forceinline__ float4 load_four(const TokenRows& rows, int64_t element) {
  if (rows.number == Number::kFloat32) {
    const float* const from = static_cast<const float*>(rows.data) + element;
    if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      return __ldg(reinterpret_cast<const float4*>(from));
    }
    return {__ldg(from), __ldg(from + 1), __ldg(from + 2), __ldg(from + 3)};
  }
  const uint16_t* const from = static_cast<const uint16_t*>(rows.data) + element;
  uint32_t low, high;
  if (reinterpret_cast<uintptr_t>(from) % 8 == 0) {
    const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
    low = words.x, high = words.y;
  } else {
    low = __ldg(from) | static_cast<uint32_t>(__ldg(from + 1)) << 16;
    high = __ldg(from + 2) | static_cast<uint32_t>(__ldg(from + 3)) << 16;
  }
  const auto number = [&](uint32_t bits) {
    return device::from_bits(rows.number, static_cast<uint16_t>(bits));
  };
  return {number(low), number(low >> 16), number(high), number(high >> 16)};
}
__device__ __forceinline__ void store_four(const TokenRows& rows, int64_t element,
                                           const float (&x)[4]) {
  const bool single = rows.number == Number::kFloat32;
  auto* const to = static_cast<uint8_t*>(rows.data) + element * (single ? 4 : 2);
  if (reinterpret_cast<uintptr_t>(to) % (single ? 16 : 8) != 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) device::store_number(rows.data, element + i, rows.number, x[i]);
  } else if (single) {
    *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
  } else {
    const auto pair = [&](float low, float high) {
      return device::to_bits(rows.number, low) |
             static_cast<uint32_t>(device::to_bits(rows.number, high)) << 16;
    };
    *reinterpret_cast<uint2*>(to) = {pair(x[0], x[1]), pair(x[2], x[3])};
  }
}

/// The lower triangle of A; rows past the chunk's tokens are zeros. Blocks above the diagonal stay
/// as they are, what lies above it inside a block is undefined.
template <int C, int kThreads>
__device__ __forceinline__ void load_lower(const StageParams& p, const Chunk& chunk, int64_t head,
                                           Triangle<C>& X) {
  const int64_t first = at(p.A, chunk.batch, chunk.row, head);
#pragma unroll 8
  for (auto e = static_cast<int>(threadIdx.x); e < C * C / 4; e += kThreads) {
    const int row = e / (C / 4), column = e % (C / 4) * 4;
    if (column >= row) continue;
    float4 x{};
    if (row < chunk.tokens) x = load_four(p.A, first + row * p.A.token_stride + column);
    *reinterpret_cast<float4*>(X.at(row, column)) = x;
  }
}
/// All C columns of the chunk's rows.
template <int C, int kThreads>
__device__ __forceinline__ void store_lower(const StageParams& p, const Chunk& chunk, int64_t head,
                                            const Triangle<C>& X) {
  const int64_t first = at(p.A_inverse, chunk.batch, chunk.row, head);
#pragma unroll 4
  for (auto e = static_cast<int>(threadIdx.x); e < C * C / 4; e += kThreads) {
    const int row = e / (C / 4), column = e % (C / 4) * 4;
    if (row >= chunk.tokens) break;
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = column + i <= row ? *X.at(row, column + i) : 0.0f;
    store_four(p.A_inverse, first + row * p.A_inverse.token_stride + column, x);
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_INVERSE_CUH_
