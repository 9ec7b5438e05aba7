// Moves a CTA's tile of S between registers and global memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_

#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/unit.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/stream.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::decode {

/// A thread's part of the tile: vectors of four neighbours in memory. Between load_tile() and
/// unpack_tile() those of 16-bit states hold two numbers a word; packed ones always do.
template <class C>
struct Tile {
  static constexpr int kWords = C::kPacked ? 2 : 4;
  uint32_t words[kVectors][kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kVectors; ++m) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[m][i] = 0;
    }
  }
  /// PERF packed numbers are converted at each use: without this the compiler keeps what it has
  /// converted once, or converts long before the use, and spills it.
  __device__ __forceinline__ void forget_converted(int m) {
    if constexpr (C::kPacked) asm volatile("" : "+r"(words[m][0]), "+r"(words[m][1]));
  }
};

/// How the vectors of a tile hold numbers.
struct InFloat32 {
  static __device__ __forceinline__ void get(const uint32_t (&words)[4], float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(words[i]);
  }
  static __device__ __forceinline__ void set(uint32_t (&words)[4], const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = __float_as_uint(x[i]);
  }
};

template <class T>
struct In16Bits {
  static __device__ __forceinline__ void get(const uint32_t (&words)[2], float (&x)[4]) {
    x[0] = tile::Packed<T>::first(words[0]), x[1] = tile::Packed<T>::second(words[0]);
    x[2] = tile::Packed<T>::first(words[1]), x[3] = tile::Packed<T>::second(words[1]);
  }
  /// Rounds to nearest even.
  static __device__ __forceinline__ void set(uint32_t (&words)[2], const float (&x)[4]) {
    words[0] = tile::Packed<T>::pack(x[0], x[1]), words[1] = tile::Packed<T>::pack(x[2], x[3]);
  }
};

/// The thread's place in a tile. [K,V]: a load of a warp is some rows of the tile, a lane has four
/// columns and `vectors` rows in a row. [V,K]: it is some columns, a lane has four rows (of each
/// piece of 128) of a column; its columns are C::kPerLoad apart.
template <class C>
struct Lane {
  int warp, index;  ///< of the warp's lanes
  int row, column;  ///< of the tile, of the first vector's first number
  int vectors;      ///< 4, 8 or 16

  __device__ __forceinline__ explicit Lane(const Grid& grid) : Lane(grid.column_bits) {}
  __device__ __forceinline__ explicit Lane(int column_bits)
      : warp(static_cast<int>(threadIdx.x / 32)),
        index(static_cast<int>(threadIdx.x % 32)),
        vectors((C::kWarpRows << column_bits) >> 7) {
    if (C::kVk) {
      row = 4 * (index % C::kLanes);
      column = warp * warp_columns() + index / C::kLanes;
    } else {
      const int bits = column_bits - 2;
      row = warp * C::kWarpRows + (index >> bits) * vectors;
      column = 4 * (index & ((1 << bits) - 1));
    }
  }
  /// [V,K]: columns of the warp.
  __device__ __forceinline__ int warp_columns() const { return vectors / C::kPieces * C::kPerLoad; }
};

/// Walks over the thread's vectors of a head's state in a slot.
/// PERF one pointer that moves instead of one offset a vector: 16 registers less.
template <class C>
struct VectorWalk {
  char* at;
  int next_vector, next_column;  ///< bytes; BOUND: a head's state has at most 256 V elements
  int rows_left, columns_left;   ///< of K and V, from the first vector's first element
  int vectors;
  int limit[C::kPieces];  ///< vectors below it exist, of each piece of a column

  template <class Params>
  __device__ __forceinline__ VectorWalk(const Params& p, const StatePool& pool, int64_t slot,
                                        const Place& place, const Lane<C>& lane)
      : vectors(lane.vectors) {
    const int bytes = pool.number == Number::kFloat32 ? 4 : 2;
    const int column = place.column + lane.column;
    const int origin = C::kVk ? column * p.K + lane.row : lane.row * p.V + column;
    const int64_t head = slot * pool.slot_stride + int64_t{place.head} * p.K * p.V;
    at = static_cast<char*>(pool.data) + (head + origin) * bytes;
    next_vector = C::kVk ? 128 * bytes : p.V * bytes;
    next_column = C::kPerLoad * p.K * bytes - (C::kPieces - 1) * next_vector;
    rows_left = p.K - lane.row;
    columns_left = p.V - column;
#pragma unroll
    for (int piece = 0; piece < C::kPieces; ++piece) {
      const int rows = rows_left - 128 * piece;
      const int columns = (columns_left + C::kPerLoad - 1) / C::kPerLoad * C::kPieces;
      const int most = C::kVk ? (rows > 0 ? columns : 0) : (columns_left > 0 ? rows : 0);
      limit[piece] = min(vectors, most);
    }
  }
  /// Whether vector m exists. Where K and V are multiples of four, all of it does or nothing.
  __device__ __forceinline__ bool exists(int m) const {
    return m < limit[C::kVk ? m % C::kPieces : 0];
  }
  /// Whether element i of vector m exists.
  __device__ __forceinline__ bool exists(int m, int i) const {
    const int row = C::kVk ? 128 * (m % C::kPieces) + i : m;
    const int column = C::kVk ? m / C::kPieces * C::kPerLoad : i;
    return m < vectors && row < rows_left && column < columns_left;
  }
  __device__ __forceinline__ void next(int m) {
    at += C::kVk && m % C::kPieces == C::kPieces - 1 ? next_column : next_vector;
  }
};

/// load_tile() of states whose rows are no whole vectors, or not aligned to them: in float32.
template <class C>
__device__ __forceinline__ void load_elements(Number number, VectorWalk<C> walk, Tile<C>& tile) {
#pragma unroll
  for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
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
  for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!walk.exists(m, i)) continue;
      device::store_number(walk.at, i, number, __uint_as_float(tile.words[m][i]));
    }
  }
}

/// Requests the tile into one that is clear; nothing waits for it here. WHY not through the
/// read-only cache: the pool may be the one that this launch writes.
template <class C, class Params>
__device__ __forceinline__ void load_tile(const Params& p, const Unit& unit, int index,
                                          const Lane<C>& lane, Tile<C>& tile) {
  if (unit.seq.read < 0) return;
  const StatePool& pool = p.state.initial.pool;
  VectorWalk<C> walk(p, pool, unit.seq.read, place_of(p, unit, index), lane);
  const uint64_t policy = ptx::evict_first();
  if constexpr (C::kPacked) {
#pragma unroll
    for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
      if (walk.exists(m)) ptx::load_stream_8(tile.words[m], walk.at, policy);
    }
  } else {
    if (C::kByElement && p.by_element) {
      load_elements<C>(pool.number, walk, tile);
    } else if (pool.number == Number::kFloat32) {
#pragma unroll
      for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
        if (walk.exists(m)) ptx::load_stream_16(tile.words[m], walk.at, policy);
      }
    } else {
#pragma unroll
      for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
        if (walk.exists(m)) ptx::load_stream_8(tile.words[m], walk.at, policy);
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void unpack_four(uint32_t (&words)[4]) {
  const uint32_t packed[2] = {words[0], words[1]};
  float x[4];
  In16Bits<T>::get(packed, x);
  InFloat32::set(words, x);
}

/// What load_tile() requested, in float32.
template <class C, class Params>
__device__ __forceinline__ void unpack_tile(const Params& p, Tile<C>& tile) {
  const Number number = p.state.initial.pool.number;
  if (number == Number::kFloat32 || (C::kByElement && p.by_element)) return;
  if (number == Number::kBfloat16) {
#pragma unroll
    for (int m = 0; m < kVectors; ++m) unpack_four<__nv_bfloat16>(tile.words[m]);
  } else {
#pragma unroll
    for (int m = 0; m < kVectors; ++m) unpack_four<__half>(tile.words[m]);
  }
}

/// Vector m of the tile as a 16-bit state has it, rounded to nearest even.
template <class C>
__device__ __forceinline__ void pack_four(Number number, const Tile<C>& tile, int m,
                                          uint32_t (&packed)[2]) {
  if constexpr (C::kPacked) {
    packed[0] = tile.words[m][0], packed[1] = tile.words[m][1];
  } else {
    float x[4];
    InFloat32::get(tile.words[m], x);
    if (number == Number::kBfloat16) {
      In16Bits<__nv_bfloat16>::set(packed, x);
    } else {
      In16Bits<__half>::set(packed, x);
    }
  }
}

/// The tile to a slot; it stays as it is.
template <class C, class Params>
__device__ __forceinline__ void store_tile(const Params& p, const Unit& unit, int index,
                                           const Lane<C>& lane, int64_t slot, const Tile<C>& tile) {
  const StatePool& pool = p.state.final.pool;
  VectorWalk<C> walk(p, pool, slot, place_of(p, unit, index), lane);
  const uint64_t policy = ptx::evict_first();
  if constexpr (!C::kPacked) {
    if (C::kByElement && p.by_element) {
      store_elements<C>(pool.number, walk, tile);
      return;
    }
    if (pool.number == Number::kFloat32) {
#pragma unroll
      for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
        if (walk.exists(m)) ptx::store_stream_16(walk.at, tile.words[m], policy);
      }
      return;
    }
  }
#pragma unroll
  for (int m = 0; m < kVectors; ++m, walk.next(m - 1)) {
    if (!walk.exists(m)) continue;
    uint32_t packed[2];
    pack_four(pool.number, tile, m, packed);
    ptx::store_stream_8(walk.at, packed, policy);
  }
}

/// The sequence's slot as it is ahead of griddepcontrol.wait, where the table may still be the one
/// before: good for requests to the L2 alone, and clamped by whoever makes them.
template <class Params>
__device__ __forceinline__ int64_t peek_slot(const Params& p, int64_t sequence) {
  const IndexVector& rows = p.state.read_slots.rows;
  if (rows.data == nullptr) return sequence;
  const int64_t at = sequence * rows.stride;
  return rows.is_64bit ? ptx::peek_64(static_cast<const int64_t*>(rows.data) + at)
                       : ptx::peek_32(static_cast<const int32_t*>(rows.data) + at);
}

/// Asks the L2 for tiles first .. last - 1 of a slot. The L2 is where all writes meet, so that what
/// earlier launches write yet is not missed later.
template <class C, class Params>
__device__ __forceinline__ void prefetch_tiles(const Params& p, const Unit& unit, int64_t slot,
                                               int first, int last) {
  const BoundedPool& pool = p.state.initial;
  if (slot < 0 || slot >= pool.slots) return;
  // PERF by sectors: bulk requests are made by one lane after the other
  const bool wide = pool.pool.number == Number::kFloat32;
  const int bits = p.column_bits(), bytes = wide ? 4 : 2, sector = wide ? 8 : 16;
  const int rows = C::kVk ? 1 << bits : C::kK;
  const int sector_bits = (C::kVk ? C::kKBits : bits) - (wide ? 3 : 4);  // of a row, as a power
  for (int tile = first; tile < last; ++tile) {
    const Place place = place_of(p, unit, tile);
    const int64_t head = slot * pool.pool.slot_stride + int64_t{place.head} * p.K * p.V;
    for (int i = static_cast<int>(threadIdx.x); i < rows << sector_bits; i += C::kThreads) {
      const int outer = i >> sector_bits, inner = (i & ((1 << sector_bits) - 1)) * sector;
      const int row = C::kVk ? inner : outer, column = place.column + (C::kVk ? outer : inner);
      if (row >= p.K || column >= p.V) continue;
      const int at = C::kVk ? column * p.K + row : row * p.V + column;
      ptx::prefetch_sector(static_cast<const char*>(pool.pool.data) + (head + at) * bytes);
    }
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_TILE_CUH_
