// wy_fast of 16-bit keys and values by tensor cores.
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

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/mma.cuh"
#include "cuda/kernels/stages/numbers.cuh"

namespace sluice::cuda::stages {

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

/// Rows row0 .. of A_inverse times diag(beta) and times diag(beta exp G), as tiles.
template <class Io>
__device__ __forceinline__ void load_inverse(const StageParams& p, const Chunk& chunk, int64_t head,
                                             int row0, int blocks, const TokenNumbers& numbers,
                                             uint32_t of_values, uint32_t of_keys) {
#pragma unroll 2
  for (auto i = static_cast<int>(threadIdx.x); i < blocks * 512; i += kBlockThreads) {
    const int block = i / 512, row = i % 512 / 8, piece = i % 8;
    const int token = row0 + row, first = block * kColumns + 8 * piece;
    float x[8] = {};
    if (token < chunk.tokens && first <= token) {
      load_eight(p.A_inverse, at(p.A_inverse, chunk.batch, chunk.row + token, head) + first, x);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = first + j <= token ? x[j] * numbers.beta[first + j] : 0.0f;
    const uint32_t place =
        static_cast<uint32_t>(block) * kTile +
        tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece));
    put_eight<Io>(of_values + place, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] *= decay(numbers.G[first + j]);
    put_eight<Io>(of_keys + place, x);
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

/// Items are slots x heads x blocks of 64 rows.
template <class Io>
__global__ void __launch_bounds__(kBlockThreads)
    wy_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const int blocks = p.C / kRows, columns = static_cast<int>(p.V + p.K);
  const uint32_t of_values = ptx::shared_address(dynamic_shared),
                 side = static_cast<uint32_t>(blocks) * kTile, of_keys = of_values + side,
                 ring = of_keys + side;
  uint8_t* const result = dynamic_shared + 4 * side;
  auto& numbers = *reinterpret_cast<TokenNumbers*>(result + kTile);
  const int row = 16 * warp();
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int block = static_cast<int>(item % blocks), row0 = block * kRows;
    const int64_t head = item / blocks % p.HV;
    const Chunk chunk = chunk_of(p, item / blocks / p.HV);
    if (row0 >= chunk.tokens) continue;
    request_columns(p, chunk, head, block, 0, ring);
    load_numbers(p, chunk, head, numbers);
    load_inverse<Io>(p, chunk, head, row0, block + 1, numbers, of_values, of_keys);
    for (int column = 0, turn = 0; column < columns; column += kColumns, turn ^= 1) {
      const uint32_t right = ring + static_cast<uint32_t>(turn) * side;
      ptx::wait_for_copies<0>();
      __syncthreads();  // SYNC: this turn's columns are there, nobody reads the other turn's
      if (column + kColumns < columns) {
        const uint32_t next = ring + static_cast<uint32_t>(turn ^ 1) * side;
        request_columns(p, chunk, head, block, column + kColumns, next);
      }
      const bool keys = column >= p.V;
      Part<8> part;
      clear<8>(part);
      for (uint32_t b = 0; b <= static_cast<uint32_t>(block); ++b) {
        multiply<Io, false, 8>(part, (keys ? of_keys : of_values) + b * kTile, row,
                               right + b * kTile, 0);
      }
      put_part<Io, 8>(ptx::shared_address(result), row, 0, part);
      store_rows<8>(result, row, 0, keys ? p.w : p.u, chunk, head, row0 + row,
                    keys ? column - p.V : column);
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_WY_CUH_
