// Multiplies rows of gradients of q and k by tiles, brings them through the l2 norm, and stores them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ROWS_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/tile_config.h"
#include "cuda/tile/fragment.cuh"

namespace sluice::cuda::backward {

using tile::Accumulator;

/// Calls use(n, pair of 16-bit numbers) for elements 2 n and 2 n + 1 of the lane's Accumulator<128>, as
/// a tile has them.
template <class Io, class Use>
__device__ __forceinline__ void for_each_pair(const TokenTile<Io>& rows, const Use& use) {
  const uint32_t first = tile::swizzled_element(static_cast<uint32_t>(tile::group_row()),
                                                static_cast<uint32_t>(tile::lane_column()));
#pragma unroll
  for (uint32_t n = 0; n < 32; ++n) {
    const uint32_t half = n / 16, j = n % 16 / 2, lower = n % 2;
    use(n, *reinterpret_cast<const uint32_t*>(rows.block(static_cast<int>(half)) +
                                              (first ^ (j << 4)) + lower * tile::kAtomBytes));
  }
}

/// Adds elements 2 n and 2 n + 1 of x times a pair to the sum of their row, of the lane's two.
template <class Io>
__device__ __forceinline__ void add_product(const Accumulator<128>& x, uint32_t n, uint32_t pair,
                                            float2& sums) {
  using Pack = tile::Packed<Io>;
  float& sum = n % 2 == 0 ? sums.x : sums.y;
  sum = fmaf(x.x[2 * n], Pack::first(pair), fmaf(x.x[2 * n + 1], Pack::second(pair), sum));
}

/// Sums of the four lanes of a row, in all of them.
__device__ __forceinline__ float2 row_sums(float2 sums) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    sums.x += __shfl_xor_sync(~0u, sums.x, step);
    sums.y += __shfl_xor_sync(~0u, sums.y, step);
  }
  return sums;
}

/// Sums over columns of x times a tile's rows, of the lane's two rows, in all four lanes of a row.
template <class Io>
__device__ __forceinline__ float2 row_products(const Accumulator<128>& x,
                                               const TokenTile<Io>& rows) {
  float2 sums{};
  for_each_pair(rows, [&](uint32_t n, uint32_t pair) { add_product<Io>(x, n, pair, sums); });
  return row_sums(sums);
}
__device__ __forceinline__ void put_row_sums(float2 sums, float* to) {
  if (tile::lane() % 4 != 0) return;
  to[tile::group_row()] = sums.x;
  to[tile::group_row() + 8] = sums.y;
}

/// One over the norms of the lane's two rows of q or k.
__device__ __forceinline__ float2 request_norms(const BackwardParams& b, const GradientItem& item,
                                                int64_t head) {
  if (!b.has_norm) return {1.0f, 1.0f};
  const int row = tile::group_row(), last = item.tokens - 1;
  return {number_at(b.norms, item.batch, item.row + min(row, last), head),
          number_at(b.norms, item.batch, item.row + min(row + 8, last), head)};
}

/// d through the norm of `rows`, of which the lane has the same elements.
template <class Io>
__device__ __forceinline__ void project(Accumulator<128>& d, const uint32_t (&rows)[32],
                                        float2 norms) {
  using Pack = tile::Packed<Io>;
  float2 sums{};
#pragma unroll
  for (uint32_t n = 0; n < 32; ++n) add_product<Io>(d, n, rows[n], sums);
  const float2 along = row_sums(sums);
#pragma unroll
  for (uint32_t n = 0; n < 32; ++n) {
    const float factor = n % 2 == 0 ? norms.x : norms.y, sum = n % 2 == 0 ? along.x : along.y;
    float* const pair = d.x + 2 * n;
    pair[0] = factor * (pair[0] - Pack::first(rows[n]) * sum);
    pair[1] = factor * (pair[1] - Pack::second(rows[n]) * sum);
  }
}

/// Four lanes' pairs of columns of four blocks of 8 become a block of each lane.
__device__ __forceinline__ uint4 exchange_pairs(uint4 x) {
  const bool odd = (tile::lane() & 1) != 0, upper = (tile::lane() & 2) != 0;
  const auto swap = [](bool second, uint32_t& a, uint32_t& b, int lanes) {
    const uint32_t other = __shfl_xor_sync(~0u, second ? a : b, lanes);
    if (second) {
      a = other;
    } else {
      b = other;
    }
  };
  swap(odd, x.x, x.y, 1);
  swap(odd, x.z, x.w, 1);
  swap(upper, x.x, x.z, 2);
  swap(upper, x.y, x.w, 2);
  return x;
}

/// Gradients of a key head's rows to memory: 16 bytes a lane where they lie so, else number by
/// number.
template <class C>
__device__ __forceinline__ void store_gradient(const BackwardParams& b, const TokenRows& to,
                                               const GradientItem& item, Accumulator<128>& d) {
  using Pack = tile::Packed<typename C::Io>;
  if (to.data == nullptr) return;
  const int64_t start = at(to, item.batch, item.row, item.key);
  const auto address = reinterpret_cast<uintptr_t>(to.data) + static_cast<uintptr_t>(2 * start);
  if (to.number != b.d_o.number || address % 16 != 0 || to.token_stride % 8 != 0) {
    d.for_each([&](int row, int column, float x) {
      if (row >= item.tokens || column >= b.stage.K) return;
      device::store_number(to.data, start + row * to.token_stride + column, to.number, x);
    });
    return;
  }
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    const int row = tile::group_row() + 8 * lower;
    auto* const out =
        static_cast<uint16_t*>(to.data) + start + row * to.token_stride + tile::lane() % 4 * 8;
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const pair = d.x + 16 * four + 4 * j + 2 * lower;
        x[j] = Pack::pack(pair[0], pair[1]);
      }
      const uint4 block = exchange_pairs({x[0], x[1], x[2], x[3]});
      const bool inside = row < item.tokens && 32 * four < b.stage.K;
      if (inside) *reinterpret_cast<uint4*>(out + 32 * four) = block;
    }
  }
}

/// Sum over value heads, through the norm of q or k, to memory.
template <class C>
__device__ __forceinline__ void finish_gradient(const BackwardParams& b, const TokenRows& to,
                                                const GradientItem& item, Accumulator<128>& d,
                                                const uint32_t (&rows)[32], float2 norms) {
  if (b.has_norm) project<typename C::Io>(d, rows, norms);
  store_gradient<C>(b, to, item, d);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_ROWS_CUH_
