// Prepares key-wise gates, second part: the products of keys and queries inside blocks of 16 tokens,
// without an exponential of a positive number.
//
// M_ij = sum over channels of k_i k_j e^{G_i - G_j}, j < i, is no product of two matrices. For a pair
// let e be the last token of the even one of the two neighbouring blocks of b tokens, b a power of
// two, that j and i lie in: e^{G_i - G_j} = e^{G_i - G_e} e^{G_e - G_j}, both exponents <= 0. So each
// level b is a product of tiles whose rows are scaled by one of these. Levels 1 to 8 lie in blocks of
// 16 tokens, which one warp has; 16 and 32 are products with other warps' blocks.
//
// The factors of all levels are products of single decays down the columns: a lane has eight tokens of
// four channels. Scaled rows reach the tensor cores by way of shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_

#include "cuda/kernels/chunk_forward/key_columns.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// Shared memory that a warp has to itself while it multiplies inside its block.
struct LevelScratch {
  /// Of one level, eight rows each of 64 channels: of k in even blocks, of k and of q in odd ones.
  tile::SwizzledTile<__half, 8, 64> even, odd_k, odd_q, rest;
};
static_assert(sizeof(LevelScratch) == 4096);

template <class T>
__device__ __forceinline__ uint2 pack_four(const Four& x) {
  return {tile::Packed<T>::pack(x.x[0], x.x[1]), tile::Packed<T>::pack(x.x[2], x.x[3])};
}
template <class T>
__device__ __forceinline__ Four widen_four(uint2 x) {
  using Pack = tile::Packed<T>;
  return {{Pack::first(x.x), Pack::second(x.x), Pack::first(x.y), Pack::second(x.y)}};
}
__device__ __forceinline__ Four scale_four(const Four& x, float by) {
  return x * Four{{by, by, by, by}};
}

/// A token's four channels of k or q as operands. WHY two ways: the rounding of decays to fp16 is
/// nothing beside bfloat16's, and takes fewer instructions than products in float32; beside fp16's it
/// is seen.
template <class Io>
struct ScaledRow {
  uint2 raw;
  float norm;
  using Factor = Four;

  ScaledRow() = default;
  __device__ __forceinline__ ScaledRow(uint2 raw_, float norm_) : raw(raw_), norm(norm_) {}
  __device__ __forceinline__ uint2 plain() const {
    return pack_four<__half>(scale_four(widen_four<Io>(raw), norm));
  }
  __device__ __forceinline__ uint2 times(const Four& decay) const {
    return pack_four<__half>(scale_four(widen_four<Io>(raw) * decay, norm));
  }
  /// What fp16 leaves of times().
  __device__ __forceinline__ uint2 rest(const Four& decay) const {
    Four x = scale_four(widen_four<Io>(raw) * decay, norm);
    const Four rounded = widen_four<__half>(pack_four<__half>(x));
#pragma unroll
    for (int c = 0; c < 4; ++c) x.x[c] -= rounded.x[c];
    return pack_four<__half>(x);
  }
  __device__ __forceinline__ static Factor factor(const Four& decay) { return decay; }
};
template <>
struct ScaledRow<__nv_bfloat16> {
  uint2 row;
  using Factor = uint2;

  ScaledRow() = default;
  __device__ __forceinline__ ScaledRow(uint2 raw, float norm)
      : row(pack_four<__half>(scale_four(widen_four<__nv_bfloat16>(raw), norm))) {}
  __device__ __forceinline__ uint2 plain() const { return row; }
  __device__ __forceinline__ uint2 times(uint2 decay) const {
    return {ptx::multiply_f16(row.x, decay.x), ptx::multiply_f16(row.y, decay.y)};
  }
  __device__ __forceinline__ static Factor factor(const Four& decay) {
    return pack_four<__half>(decay);
  }
};

/// One of two factors. WHY not by reference: it would put both into memory.
__device__ __forceinline__ Four chosen(bool first, Four a, Four b) {
  Four out;
#pragma unroll
  for (int c = 0; c < 4; ++c) out.x[c] = first ? a.x[c] : b.x[c];
  return out;
}
__device__ __forceinline__ uint2 chosen(bool first, uint2 a, uint2 b) {
  return {first ? a.x : b.x, first ? a.y : b.y};
}

/// Products of a block of 16 tokens by level, 1, 2, 4, 8. Numbers 0, 1 are keys' (M), 2, 3 queries'
/// (P): of row lane_row() of odd blocks' tokens, columns lane_column() and the next of even ones'.
struct BlockSums {
  float level[4][4] = {};
};

/// The products of the level whose rows the scratch has, 64 channels. On return it may be written.
__device__ __forceinline__ void multiply_level(const LevelScratch& from, float (&sum)[4]) {
  __syncwarp();  // all lanes' rows are there
  const auto at = static_cast<uint32_t>(tile::lane());
  const uint32_t odd = from.odd_k.address() + tile::swizzled_piece(at & 15u, at >> 4),
                 even = from.even.address() + tile::swizzled_piece(at & 7u, at >> 3);
  uint32_t left[4][4], right[2][4];
#pragma unroll
  for (uint32_t step = 0; step < 4; ++step) ptx::ldmatrix_x4(left[step], odd ^ step * 32);
  ptx::ldmatrix_x4(right[0], even);
  ptx::ldmatrix_x4(right[1], even ^ 64u);
  __syncwarp();  // all lanes have read
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    ptx::mma_f16(sum, left[step], &right[step / 2][step % 2 * 2]);
  }
}

/// One lane's columns: eight tokens, four channels of the 64 of a tile's block.
template <class Io>
struct LaneColumns {
  Four a[8];  ///< decays of single tokens
  ScaledRow<Io> k[8], q[8];

  __device__ __forceinline__ LaneColumns(const Four (&decays)[8], const ColumnPlace& place,
                                         const RowNorms& norms, const uint8_t* k_tile,
                                         const uint8_t* q_tile) {
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      const auto four = [&](const uint8_t* tile) {
        return *reinterpret_cast<const uint2*>(tile + place.at(t));
      };
      a[t] = decays[t];
      k[t] = ScaledRow<Io>(four(k_tile), norms.k[8 * place.half + t]);
      q[t] = ScaledRow<Io>(four(q_tile), norms.q[8 * place.half + t]);
    }
  }
};

/// Writes rows of levels 1, 2, 4: four tokens of either half of the block have four rows of a tile.
struct LevelWriter {
  LevelScratch& to;
  uint32_t offset;

  __device__ __forceinline__ LevelWriter(LevelScratch& to_, const ColumnPlace& at) : to(to_) {
    const auto half = static_cast<uint32_t>(at.half);
    offset = (static_cast<uint32_t>(at.channel) * 2 ^ half * 64) + half * 4 * tile::kRowBytes;
  }
  __device__ __forceinline__ void put(tile::SwizzledTile<__half, 8, 64>& tile, int row,
                                      uint2 x) const {
    const auto r = static_cast<uint32_t>(row);
    *reinterpret_cast<uint2*>(tile.bytes + (offset ^ r << 4) + r * tile::kRowBytes) = x;
  }
};

/// Levels 1, 2 and 4 of a block, 64 channels.
template <class Io>
__device__ __forceinline__ void add_low_levels(LevelScratch& scratch, const ColumnPlace& place,
                                               const LaneColumns<Io>& x, BlockSums& sums) {
  using Row = ScaledRow<Io>;
  const LevelWriter writer(scratch, place);
  const auto even = [&](int row, int t, const typename Row::Factor& factor) {
    writer.put(scratch.even, row, x.k[t].times(factor));
  };
  const auto odd = [&](int row, int t, const typename Row::Factor& factor) {
    writer.put(scratch.odd_k, row, x.k[t].times(factor));
    writer.put(scratch.odd_q, row, x.q[t].times(factor));
  };
  const typename Row::Factor a1 = Row::factor(x.a[1]), a5 = Row::factor(x.a[5]);
#pragma unroll
  for (int row = 0; row < 4; ++row) writer.put(scratch.even, row, x.k[2 * row].plain());
  odd(0, 1, a1);
  odd(1, 3, Row::factor(x.a[3]));
  odd(2, 5, a5);
  odd(3, 7, Row::factor(x.a[7]));
  multiply_level(scratch, sums.level[0]);
  const Four a23 = x.a[2] * x.a[3], a67 = x.a[6] * x.a[7];
  const typename Row::Factor f23 = Row::factor(a23);
  even(0, 0, a1);
  writer.put(scratch.even, 1, x.k[1].plain());
  even(2, 4, a5);
  writer.put(scratch.even, 3, x.k[5].plain());
  odd(0, 2, Row::factor(x.a[2]));
  odd(1, 3, f23);
  odd(2, 6, Row::factor(x.a[6]));
  odd(3, 7, Row::factor(a67));
  multiply_level(scratch, sums.level[1]);
  const Four a45 = x.a[4] * x.a[5];
  even(0, 0, Row::factor(x.a[1] * a23));
  even(1, 1, f23);
  even(2, 2, Row::factor(x.a[3]));
  writer.put(scratch.even, 3, x.k[3].plain());
  odd(0, 4, Row::factor(x.a[4]));
  odd(1, 5, Row::factor(a45));
  odd(2, 6, Row::factor(a45 * x.a[6]));
  odd(3, 7, Row::factor(a45 * a67));
  multiply_level(scratch, sums.level[2]);
}

/// Level 8 of a block, 64 channels, and what levels 16 and 32 need: k and q times their decay since
/// the block's start, in place of k and q, and k times that up to its end, in fp16. `other`: decays
/// over the other half of the block.
template <class C>
struct HighLevels {
  using Row = ScaledRow<typename C::Io>;
  LevelScratch& scratch;
  const ColumnPlace& place;
  KeyPrepareMemory<C>& memory;
  int columns;
  const Four& other;
  uint8_t *q, *level;
  uint8_t *through, *within;  ///< k and k^ in the order of the decays that go over the other half

  __device__ __forceinline__ HighLevels(LevelScratch& scratch_, const ColumnPlace& place_,
                                        KeyPrepareMemory<C>& memory_, int columns_,
                                        const Four& other_)
      : scratch(scratch_), place(place_), memory(memory_), columns(columns_), other(other_) {
    KeyTiles<C>& tiles = memory.tiles;
    uint8_t *const k = tiles.k.block(columns), *const k_late = tiles.k_late.block(columns);
    q = tiles.q.block(columns);
    through = place.half != 0 ? k : k_late;
    within = place.half != 0 ? k_late : k;
    // Rows of odd tokens' keys follow those of even ones.
    level = scratch.even.bytes + place.half * static_cast<int>(tile::kAtomBytes) -
            place.token() * static_cast<int>(tile::kRowBytes);
  }
  __device__ __forceinline__ static void put(uint8_t* to, uint2 four) {
    *reinterpret_cast<uint2*>(to) = four;
  }
  /// Token t of the lane's. `early`, `late`: decays from its first token up to this one, and from the
  /// one after this up to its last.
  __device__ __forceinline__ void add(const LaneColumns<typename C::Io>& x, int t,
                                      const Four& early, const Four& late) const {
    const uint32_t row = place.at(t);
    const bool upper = place.half != 0;
    // Towards the other half of the block, and away from it.
    const Four inside = chosen(upper, early, late), outside = chosen(upper, late, early);
    const typename Row::Factor low = Row::factor(inside), far = Row::factor(inside * other),
                               near = Row::factor(outside);
    put(level + row, x.k[t].times(low));
    if (upper) put(level + tile::kAtomBytes + row, x.q[t].times(low));
    put(through + row, x.k[t].times(far));
    put(within + row, x.k[t].times(near));
    put(q + row, x.q[t].times(chosen(upper, far, near)));
    if constexpr (C::kRests) {
      put(memory.q_rest.block(columns) + row, x.q[t].rest(chosen(upper, far, near)));
      put(memory.k_late_rest.block(columns) + row, x.k[t].rest(chosen(upper, near, far)));
    }
  }
  /// All tokens. PERF products in an order that keeps few of them.
  __device__ __forceinline__ void add_all(const LaneColumns<typename C::Io>& x,
                                          float (&sum)[4]) const {
    const Four(&a)[8] = x.a;
    const Four a67 = a[6] * a[7], a47 = (a[4] * a[5]) * a67;
    const Four a23 = a[2] * a[3], a01 = a[0] * a[1], a02 = a01 * a[2];
    add(x, 0, a[0], (a[1] * a23) * a47);
    add(x, 1, a01, a23 * a47);
    add(x, 2, a02, a[3] * a47);
    const Four a03 = a02 * a[3], a04 = a03 * a[4], a05 = a04 * a[5], a06 = a05 * a[6];
    add(x, 3, a03, a47);
    add(x, 4, a04, a[5] * a67);
    add(x, 5, a05, a67);
    add(x, 6, a06, a[7]);
    add(x, 7, a06 * a[7], {{1.0f, 1.0f, 1.0f, 1.0f}});
    multiply_level(scratch, sum);
  }
};

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_LEVELS_CUH_
