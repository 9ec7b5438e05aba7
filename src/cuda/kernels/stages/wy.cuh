// Runs wy_fast of 16-bit keys and values by tensor cores.
//
// Math      u = A_inverse diag(beta) v, w = A_inverse diag(beta exp G) k
// Roles     a CTA of 128 threads has 64 rows of u and of w of one (chunk, head); a warp 16 of them
// Pipeline  A_inverse with either factor, rounded -> 64 columns of v, then of k, one block ahead
// Memory    tiles of 8 KB, C / 64 each: two of A_inverse, two of columns; one of results
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_WY_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_WY_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/stages/config.h"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::stages {

using device::at, device::Chunk, device::chunk_of, device::decay, device::key_head;
using device::load_numbers, device::Number, device::request_tile, device::StageParams;
using device::store_rows, device::TokenNumbers, device::TokenRows;
using tile::kTile, tile::multiply, tile::WarpAccumulator, tile::put_part, tile::warp;

/// Eight numbers of a row that is aligned to 16 bytes.
__device__ __forceinline__ void load_eight(const TokenRows& rows, int64_t element, float (&x)[8]) {
  if (rows.number == Number::kFloat32) {
    const auto* from =
        reinterpret_cast<const float4*>(static_cast<const float*>(rows.data) + element);
    const float4 low = __ldg(from), high = __ldg(from + 1);
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    return;
  }
  const uint4 words =
      __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(rows.data) + element));
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] = device::from_bits(rows.number, static_cast<uint16_t>(word[i / 2] >> (i % 2 * 16)));
  }
}

template <class Io>
__device__ __forceinline__ void put_eight(uint32_t address, const float (&x)[8]) {
  using P = tile::Packed<Io>;
  const uint32_t words[4] = {P::pack(x[0], x[1]), P::pack(x[2], x[3]), P::pack(x[4], x[5]),
                             P::pack(x[6], x[7])};
  ptx::store_shared_16(address, words);
}

/// A_inverse times diag(beta), and times diag(beta exp G): tiles of blocks on and below the
/// diagonal, row by row of blocks from `first` on.
struct InverseTiles {
  uint32_t of_values, of_keys;
  int first;
  __device__ __forceinline__ uint32_t place(int block, int b) const {
    return static_cast<uint32_t>((block * (block + 1) - first * (first + 1)) / 2 + b) * kTile;
  }
};

/// Fills the tiles of rows kRows * block ..; read(token, first column, numbers) gives eight numbers
/// of A_inverse, of which those above the diagonal do not count.
template <class Io, class Read>
__device__ __forceinline__ void put_inverse(const Chunk& chunk, int block,
                                            const TokenNumbers& numbers, const InverseTiles& tiles,
                                            const Read& read) {
#pragma unroll 2
  for (auto i = static_cast<int>(threadIdx.x); i < (block + 1) * 512; i += kBlockThreads) {
    const int b = i / 512, row = i % 512 / 8, piece = i % 8;
    const int token = block * kRows + row, first = b * kColumns + 8 * piece;
    float x[8] = {};
    if (token < chunk.tokens && first <= token) read(token, first, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = first + j <= token ? x[j] * numbers.beta[first + j] : 0.0f;
    const uint32_t place =
        tiles.place(block, b) +
        tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece));
    put_eight<Io>(tiles.of_values + place, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] *= decay(numbers.G[first + j]);
    put_eight<Io>(tiles.of_keys + place, x);
  }
}

/// Requests 64 columns, of v first and then of k, of all tokens up to block `block`.
__device__ __forceinline__ void request_columns(const StageParams& p, const Chunk& chunk,
                                                int64_t head, int block, int column,
                                                uint32_t tiles) {
  const bool keys = column >= p.V;
  const TokenRows& from = keys ? p.k : p.values;
  for (int b = 0; b <= block; ++b) {
    request_tile<kBlockThreads>(tiles + static_cast<uint32_t>(b) * kTile, from, chunk,
                                keys ? key_head(p, head) : head, b * kRows,
                                keys ? column - p.V : column);
  }
  ptx::close_copies();
}

/// Two turns of 64 columns of all tokens of the chunk, and a tile of results.
struct ColumnTiles {
  uint32_t first, second;
  uint8_t* result;
  __device__ __forceinline__ uint32_t ring(int turn) const { return turn == 0 ? first : second; }
};

/// u and w of the blocks of rows tiles.first .. last. The first 64 columns are on their way, the
/// tiles of A_inverse may be.
template <class Io>
__device__ __forceinline__ void multiply_all_columns(const StageParams& p, const Chunk& chunk,
                                                     int64_t head, int last,
                                                     const InverseTiles& tiles,
                                                     const ColumnTiles& columns) {
  const int row = 16 * warp(), count = static_cast<int>(p.V + p.K);
  for (int column = 0, turn = 0; column < count; column += kColumns, turn ^= 1) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: this turn's columns are there, nobody reads the other turn's
    if (column + kColumns < count) {
      request_columns(p, chunk, head, last, column + kColumns, columns.ring(turn ^ 1));
    }
    const bool keys = column >= p.V;
    for (int block = tiles.first; block <= last; ++block) {
      WarpAccumulator<8> part;
      part.clear();
      for (int b = 0; b <= block; ++b) {
        multiply<Io, false, 8>(part,
                               (keys ? tiles.of_keys : tiles.of_values) + tiles.place(block, b),
                               row, columns.ring(turn) + static_cast<uint32_t>(b) * kTile, 0);
      }
      put_part<Io>(ptx::shared_address(columns.result), row, 0, part);
      store_rows<8>(columns.result, row, 0, keys ? p.w : p.u, chunk, head, block * kRows + row,
                    keys ? column - p.V : column);
    }
  }
}

/// Items are slots x heads x blocks of 64 rows.
template <class Io>
__global__ void __launch_bounds__(kBlockThreads)
    wy_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const int blocks = p.C / kRows;
  const uint32_t base = ptx::shared_address(dynamic_shared),
                 side = static_cast<uint32_t>(blocks) * kTile;
  uint8_t* const result = dynamic_shared + 4 * side;
  auto& numbers = *reinterpret_cast<TokenNumbers*>(result + kTile);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int block = static_cast<int>(item % blocks);
    const int64_t head = item / blocks % p.HV;
    const Chunk chunk = chunk_of(p, item / blocks / p.HV);
    if (block * kRows >= chunk.tokens) continue;
    const InverseTiles tiles{base, base + side, block};
    const ColumnTiles columns{base + 2 * side, base + 3 * side, result};
    request_columns(p, chunk, head, block, 0, columns.first);
    load_numbers(p, chunk, head, numbers);
    put_inverse<Io>(chunk, block, numbers, tiles, [&](int token, int first, float(&x)[8]) {
      load_eight(p.A_inverse, at(p.A_inverse, chunk.batch, chunk.row + token, head) + first, x);
    });
    multiply_all_columns<Io>(p, chunk, head, block, tiles, columns);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_WY_CUH_
