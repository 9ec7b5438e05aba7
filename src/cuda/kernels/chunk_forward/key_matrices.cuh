// Prepares key-wise gates, fourth part: P, and A = diag(beta) M with the inverse of I + A.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_MATRICES_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_MATRICES_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/key_blocks.cuh"

namespace sluice::cuda::chunk_forward {

/// All products of a warp's block of 16 tokens.
struct KeySums {
  BlockSums inside;
  PairSums keys, queries;
  float own;  ///< of token lane % 16, its query times its key
};

/// What makes good for rows of unit length: of k (kind 0) or q.
template <class C>
__device__ __forceinline__ float length_of(const KeyTables<C>& s, int kind, int row) {
  if constexpr (C::kL2Norm) return 1.0f;
  return s.lengths[kind][row];
}

/// Scales a 16x16 block by a factor a row, and columns from `column` on by lengths of keys.
template <class C>
__device__ __forceinline__ void scale_sums(const KeyTables<C>& s, float (&x)[8],
                                           const float (&row)[2], int column) {
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int at = column + 8 * t + tile::lane_column();
    const float c[2] = {length_of(s, 0, at), length_of(s, 0, at + 1)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[4 * t + 2 * i] *= row[i] * c[0];
      x[4 * t + 2 * i + 1] *= row[i] * c[1];
    }
  }
}

template <class T>
__device__ __forceinline__ void pack_sums(uint32_t (&out)[4], const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = tile::Packed<T>::pack(x[2 * i], x[2 * i + 1]);
}

/// A 16x16 block of A to `blocks` in fp16, and what that leaves of it to the mirrored place.
template <class Io>
__device__ __forceinline__ void store_rounded(const BlockTile& blocks, int row, int column,
                                              float (&a)[8]) {
  uint32_t packed[4];
  pack_sums<__half>(packed, a);
  ptx::stmatrix_x4(blocks.block(row, column), packed);
  if constexpr (kTwoPartA<Io>) {
#pragma unroll
    for (float& x : a) x = fp16_rest(x);
    pack_sums<__half>(packed, a);
    ptx::stmatrix_x4(blocks.block(column, row), packed);
  }
}

/// Where a warp puts products inside its block in order: rows of Tmat (M) and of P that are not
/// written yet. WHY a pitch of 20: rows of lanes meet few banks twice.
struct BlockNumbers {
  float x[16][20];
  DiagonalBlock diagonal[2];  ///< of A
};
static_assert(sizeof(BlockNumbers) <= 16 * tile::kRowBytes);

template <class Tile>
__device__ __forceinline__ BlockNumbers& numbers_of(Tile& tile, int block) {
  return *reinterpret_cast<BlockNumbers*>(tile.bytes + block * 16 * tile::kRowBytes);
}

/// Puts the lane's products in order. kFirst: 0 in M, 2 in P.
template <int kFirst>
__device__ __forceinline__ void order_products(BlockNumbers& to, const BlockSums& sums) {
  const int i = tile::lane_row(), j = tile::lane_column();
  const auto put = [&](int row, int column, const float(&of)[4]) {
    *reinterpret_cast<float2*>(&to.x[row][column]) = make_float2(of[kFirst], of[kFirst + 1]);
  };
  // Level b has a product of tokens b (2 (i / b) + 1) + i % b and 2 b (j / b) + j % b if i / b = j / b.
  if (i / 2 == j / 2) {
    const float(&of)[4] = sums.level[0];
    to.x[2 * i + 1][2 * i] = i % 2 == 0 ? of[kFirst] : of[kFirst + 1];
    put(4 * (i / 2) + 2 + i % 2, 2 * j, sums.level[1]);
  }
  if (i / 4 == j / 4) put(8 * (i / 4) + 4 + i % 4, 8 * (j / 4) + j % 4, sums.level[2]);
  put(8 + i, j, sums.level[3]);
}

/// The diagonal block as left ones are, 0 above the diagonal and, of M, on it.
template <int kFirst>
__device__ __forceinline__ void load_ordered(float (&x)[8], const BlockNumbers& from) {
  const int row = tile::lane_row(), column = tile::lane_column();
#pragma unroll
  for (int at = 0; at < 8; at += 2) {
    const int i = at / 2 % 2, t = at / 4;
    x[at] = x[at + 1] = 0.0f;
    if (i < t) continue;
    const float2 two = *reinterpret_cast<const float2*>(&from.x[row + 8 * i][column + 8 * t]);
    const int last = kFirst == 0 ? row - 1 : row;
    x[at] = i > t || column <= last ? two.x : 0.0f;
    x[at + 1] = i > t || column + 1 <= last ? two.y : 0.0f;
  }
}

/// Rows of block `block` of A = diag(beta) M for the inverse (see prepare.cuh, store_a).
template <class C>
__device__ __forceinline__ void store_keys(KeyTiles<C>& tiles, KeyTables<C>& s, int block,
                                           KeySums& sums) {
  using Io = typename C::Io;
  using Half = tile::Packed<__half>;
  const int lane_row = tile::lane_row(), lane_column = tile::lane_column(), first = 16 * block;
  const BlockTile blocks(s.blocks.bytes);
  const float factor[2] = {s.beta[first + lane_row] * length_of(s, 0, first + lane_row),
                           s.beta[first + lane_row + 8] * length_of(s, 0, first + lane_row + 8)};
  BlockNumbers& numbers = numbers_of(tiles.Tmat, block);
  order_products<0>(numbers, sums.inside);
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
    scale_sums(s, sums.keys.left[column], factor, 16 * column);
    store_rounded<Io>(blocks, block, column, sums.keys.left[column]);
  }
  __syncwarp();
  float a[8];
  load_ordered<0>(a, numbers);
  scale_sums(s, a, factor, first);
  const auto diagonal = [&](int i) -> float2& {
    return *reinterpret_cast<float2*>(&numbers.diagonal[i].row[lane_row][lane_column]);
  };
  diagonal(0) = make_float2(a[0], a[1]);
  diagonal(1) = make_float2(a[6], a[7]);
  const auto at = [&](int r, int c) {
    return blocks.base + tile::swizzled_element(static_cast<uint32_t>(first + r + lane_row),
                                                static_cast<uint32_t>(first + c + lane_column));
  };
  ptx::store_shared_4(at(8, 0), Half::pack(a[2], a[3]));
  ptx::store_shared_4(at(0, 8), kTwoPartA<Io> ? Half::pack(fp16_rest(a[2]), fp16_rest(a[3])) : 0);
}

/// Inverts the diagonal block of 16 tokens, by the warp that has stored it: both 8x8 blocks by
/// substitution, which are then merged. As substitute_diagonal() and merge_diagonals() do with all
/// four. PERF four warps at once, in place of one while all others wait.
template <class C>
__device__ __forceinline__ void invert_block(KeyTiles<C>& tiles, KeyTables<C>& s, int block) {
  using Io = typename C::Io;
  const BlockTile blocks(s.blocks.bytes), tmat(tiles.Tmat.bytes);
  const int lane = tile::lane(), row = lane & 7;
  // Lanes 16 .. 31 do what lanes 0 .. 15 do.
  const DiagonalBlock& a = numbers_of(tiles.Tmat, block).diagonal[lane >> 3 & 1];
  float inverse[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) inverse[j] = j == row ? 1.0f : 0.0f;
  substitute_step<7>(inverse, a);
  substitute_step<6>(inverse, a);
  substitute_step<5>(inverse, a);
  substitute_step<4>(inverse, a);
  substitute_step<3>(inverse, a);
  substitute_step<2>(inverse, a);
  substitute_step<1>(inverse, a);
  __syncwarp();  // all lanes have read A, whose place is taken
  const uint32_t none[4] = {};
#pragma unroll
  for (int column = 0; column < 4; ++column) {
    if (column >= block) ptx::stmatrix_x4(tmat.block(block, column), none);
  }
  __syncwarp();
  store_inverted_row<Io>(inverse, blocks, tmat, static_cast<uint32_t>(16 * block + (lane & 15)),
                         s.beta);
  __syncwarp();
  const uint32_t upper = blocks.base + tile::swizzled_piece(static_cast<uint32_t>(16 * block + row),
                                                            static_cast<uint32_t>(2 * block));
  const uint32_t lower = upper + 8 * tile::kRowBytes;
  // Of four 8x8 blocks at a time: X_22; A_21, X_11 and what rounding left of A_21.
  uint32_t x22[4], others[4];
  ptx::ldmatrix_x4(x22, lower ^ 16);
  ptx::ldmatrix_x4_trans(others, lane < 8 ? lower : lane < 16 ? upper : upper ^ 16);
  float left[4] = {}, x[4] = {};
  ptx::mma_f16_k8(left, x22[0], others[0]);
  if constexpr (kTwoPartA<Io>) ptx::mma_f16_k8(left, x22[0], others[2]);
  ptx::mma_f16_k8(x, tile::Packed<__half>::pack(left[0], left[1]), others[1]);
  __syncwarp();  // all lanes have read A_21, which is overwritten
  const int column = 16 * block + tile::lane_column();
  const uint32_t at = tile::swizzled_element(
      static_cast<uint32_t>(16 * block + 8 + tile::lane_row()), static_cast<uint32_t>(column));
  const float2 f = *reinterpret_cast<const float2*>(&s.beta[column]);
  ptx::store_shared_4(blocks.base + at, tile::Packed<__half>::pack(-x[0], -x[1]));
  ptx::store_shared_4(tmat.base + at, tile::Packed<Io>::pack(-x[0] * f.x, -x[1] * f.y));
  if constexpr (kTwoPartA<Io>) {
    ptx::store_shared_4((blocks.base + at - 8 * tile::kRowBytes) ^ 16, 0);
  }
}

/// Rows of block `block` of P.
template <class C>
__device__ __forceinline__ void store_queries(const PrefillParams& p, KeyTiles<C>& tiles,
                                              const KeyTables<C>& s, int block, KeySums& sums) {
  using Io = typename C::Io;
  const int row = 16 * block + tile::lane_row();
  const BlockTile tile(tiles.P.bytes);
  const float factor[2] = {p.scale * length_of(s, 1, row), p.scale * length_of(s, 1, row + 8)};
  BlockNumbers& numbers = numbers_of(tiles.P, block);
  order_products<2>(numbers, sums.inside);
  if (tile::lane() < 16) numbers.x[tile::lane()][tile::lane()] = sums.own;
  __syncwarp();
  float x[8];
  load_ordered<2>(x, numbers);
  __syncwarp();  // all lanes have read, whose place is taken
  uint32_t packed[4] = {};
#pragma unroll
  for (int column = 1; column < 4; ++column) {
    if (column > block) ptx::stmatrix_x4(tile.block(block, column), packed);
  }
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
    scale_sums(s, sums.queries.left[column], factor, 16 * column);
    pack_sums<Io>(packed, sums.queries.left[column]);
    ptx::stmatrix_x4(tile.block(block, column), packed);
  }
  scale_sums(s, x, factor, 16 * block);
  pack_sums<Io>(packed, x);
  ptx::stmatrix_x4(tile.block(block, block), packed);
}

/// The rest of Tmat, by one warp.
template <class C>
__device__ __forceinline__ void invert_keys(KeyTiles<C>& tiles, KeyTables<C>& s) {
  using Io = typename C::Io;
  const BlockTile blocks(s.blocks.bytes), tmat(tiles.Tmat.bytes);
  merge_pairs<Io>(blocks, tmat, s.beta);
  __syncwarp();
  merge_halves<Io>(blocks, tmat, s.beta);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_MATRICES_CUH_
