// A warp's tile of S between registers and global memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/unit.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/stream.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::decode {

/// A lane's part of the tile: vectors of four neighbours in memory. Between load_tile() and
/// unpack_tile() those of 16-bit states hold two numbers a word, in their first two words.
template <class C>
struct Tile {
  uint32_t words[C::kVectors][4];

  /// Row 32 j + 4 key + e, column 4 column + i.
  __device__ __forceinline__ uint32_t& word(int j, int e, int i) {
    return C::kVk ? words[4 * j + i][e] : words[4 * j + e][i];
  }
  __device__ __forceinline__ float get(int j, int e, int i) {
    return __uint_as_float(word(j, e, i));
  }
  __device__ __forceinline__ void set(int j, int e, int i, float x) {
    word(j, e, i) = __float_as_uint(x);
  }
};

/// The lane's place in its warp.
template <class C>
struct Lane {
  int key, column;
  __device__ __forceinline__ Lane()
      : key(static_cast<int>(threadIdx.x >> C::kKeyBit) & 7),
        column(static_cast<int>(threadIdx.x >> C::kColumnBit) & 3) {}
};

/// Walks over the lane's vectors of a head's state in a slot.
/// PERF one pointer that moves instead of one offset a vector: 16 registers less.
template <class C>
struct VectorWalk {
  char* at;
  int next_vector, next_step;   ///< bytes; BOUND: a head's state has at most 256 V elements
  int rows_left, columns_left;  ///< of K and V, from the first vector's first element

  __device__ __forceinline__ VectorWalk(const DecodeParams& p, const StatePool& pool, int64_t slot,
                                        const Place& place, const Lane<C>& lane) {
    const int bytes = pool.number == Number::kFloat32 ? 4 : 2;
    const int column = place.column + 4 * lane.column, row = 4 * lane.key;
    const int origin = C::kVk ? column * p.K + row : row * p.V + column;
    const int64_t head = slot * pool.slot_stride + int64_t{place.head} * p.K * p.V;
    at = static_cast<char*>(pool.data) + (head + origin) * bytes;
    next_vector = (C::kVk ? p.K : p.V) * bytes;
    next_step = C::kVk ? 32 * bytes - 3 * next_vector : 29 * next_vector;
    rows_left = p.K - row;
    columns_left = p.V - column;
  }
  /// Whether vector m exists. Where K and V are multiples of four, all of it does or nothing.
  __device__ __forceinline__ bool exists(int m) const {
    return m / 4 * 32 < rows_left && columns_left > 0;
  }
  /// Whether element i of vector m exists.
  __device__ __forceinline__ bool exists(int m, int i) const {
    const int e = C::kVk ? i : m % 4, column = C::kVk ? m % 4 : i;
    return m / 4 * 32 + e < rows_left && column < columns_left;
  }
  __device__ __forceinline__ void next(int m) { at += m % 4 == 3 ? next_step : next_vector; }
};

/// load_tile() of states whose rows are no whole vectors, or not aligned to them: in float32.
template <class C>
__device__ __forceinline__ void load_elements(Number number, VectorWalk<C> walk, Tile<C>& tile) {
#pragma unroll
  for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!walk.exists(m, i)) continue;
      tile.words[m][i] = __float_as_uint(device::load_written(walk.at, i, number));
    }
  }
}

template <class C>
__device__ __forceinline__ void store_elements(Number number, VectorWalk<C> walk,
                                               const Tile<C>& tile) {
#pragma unroll
  for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!walk.exists(m, i)) continue;
      device::store_number(walk.at, i, number, __uint_as_float(tile.words[m][i]));
    }
  }
}

/// Requests the tile, zeros where there is nothing; nothing waits for it here. WHY not through the
/// read-only cache: the pool may be the one that this launch writes.
template <class C>
__device__ __forceinline__ void load_tile(const DecodeParams& p, const Unit& unit, int index,
                                          const Lane<C>& lane, Tile<C>& tile) {
#pragma unroll
  for (int m = 0; m < C::kVectors; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.words[m][i] = 0;
  }
  if (unit.seq.read < 0) return;
  const StatePool& pool = p.state.initial.pool;
  VectorWalk<C> walk(p, pool, unit.seq.read, place_of(p, unit, index), lane);
  if (C::kByElement && p.by_element) {
    load_elements<C>(pool.number, walk, tile);
    return;
  }
  const uint64_t policy = ptx::evict_first();
  if (pool.number == Number::kFloat32) {
#pragma unroll
    for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
      if (walk.exists(m)) ptx::load_stream_16(tile.words[m], walk.at, policy);
    }
  } else {
#pragma unroll
    for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
      if (walk.exists(m)) ptx::load_stream_8(tile.words[m], walk.at, policy);
    }
  }
}

template <class T>
__device__ __forceinline__ void unpack_four(uint32_t (&words)[4]) {
  const uint32_t low = words[0], high = words[1];
  words[0] = __float_as_uint(tile::Packed<T>::first(low));
  words[1] = __float_as_uint(tile::Packed<T>::second(low));
  words[2] = __float_as_uint(tile::Packed<T>::first(high));
  words[3] = __float_as_uint(tile::Packed<T>::second(high));
}

/// What load_tile() requested, in float32.
template <class C>
__device__ __forceinline__ void unpack_tile(const DecodeParams& p, Tile<C>& tile) {
  const Number number = p.state.initial.pool.number;
  if (number == Number::kFloat32 || (C::kByElement && p.by_element)) return;
  if (number == Number::kBfloat16) {
#pragma unroll
    for (int m = 0; m < C::kVectors; ++m) unpack_four<__nv_bfloat16>(tile.words[m]);
  } else {
#pragma unroll
    for (int m = 0; m < C::kVectors; ++m) unpack_four<__half>(tile.words[m]);
  }
}

template <class T>
__device__ __forceinline__ void pack_four(const uint32_t (&words)[4], uint32_t (&packed)[4]) {
  packed[0] = tile::Packed<T>::pack(__uint_as_float(words[0]), __uint_as_float(words[1]));
  packed[1] = tile::Packed<T>::pack(__uint_as_float(words[2]), __uint_as_float(words[3]));
}

/// Rounds to nearest even; the tile stays as it is.
template <class C>
__device__ __forceinline__ void store_tile(const DecodeParams& p, const Unit& unit, int index,
                                           const Lane<C>& lane, int64_t slot, const Tile<C>& tile) {
  const StatePool& pool = p.state.final.pool;
  VectorWalk<C> walk(p, pool, slot, place_of(p, unit, index), lane);
  if (C::kByElement && p.by_element) {
    store_elements<C>(pool.number, walk, tile);
    return;
  }
  const uint64_t policy = ptx::evict_first();
  if (pool.number == Number::kFloat32) {
#pragma unroll
    for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
      if (walk.exists(m)) ptx::store_stream_16(walk.at, tile.words[m], policy);
    }
    return;
  }
#pragma unroll
  for (int m = 0; m < C::kVectors; ++m, walk.next(m - 1)) {
    if (!walk.exists(m)) continue;
    uint32_t packed[4];
    if (pool.number == Number::kBfloat16) {
      pack_four<__nv_bfloat16>(tile.words[m], packed);
    } else {
      pack_four<__half>(tile.words[m], packed);
    }
    ptx::store_stream_8(walk.at, packed, policy);
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_
