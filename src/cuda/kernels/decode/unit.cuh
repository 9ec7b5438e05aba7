// Says what a CTA has to do, and how its shared memory is laid out.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_

#include "cuda/device/sequence.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/params.h"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::decode {

using device::number_of, device::Sequence;

/// Tiles first .. last - 1 of one (sequence, key head). Tile i is 2^column_bits columns of value
/// head i / tiles_per_head of that key head.
struct Unit {
  Sequence seq;
  int key_head;
  int rank;  ///< which of the unit's CTAs
  int first, last;
};

/// What the grid alone says; nothing is read. The rest: device::find_rows(), device::find_slots().
template <class Params>
__device__ __forceinline__ Unit unit_of(const Params& p) {
  Unit unit;
  unit.rank = static_cast<int>(blockIdx.x);
  unit.key_head = static_cast<int>(blockIdx.y);
  unit.seq.index = blockIdx.z;
  const int tiles = p.r * p.tiles_per_head;
  unit.first = min(unit.rank * p.tiles(), tiles);
  unit.last = min(unit.first + p.tiles(), tiles);
  return unit;
}

/// n / d and the rest. PERF integer division is twenty instructions, in every address.
struct Quotient {
  int whole, rest;
  __device__ __forceinline__ Quotient(int n, const Divisor& by, int d)
      : whole(static_cast<int>((static_cast<uint64_t>(n) * by.magic) >> Divisor::kShift)),
        rest(n - whole * d) {}
};

/// Where a tile, or a column of the CTA, lies in V.
struct Place {
  int member;  ///< of the key head's value heads
  int head;    ///< value head
  int column;  ///< of that head, may be past V in its last tile
};

/// Value head `member` of the unit's key head.
template <class Params>
__device__ __forceinline__ int head_of(const Params& p, const Unit& unit, int member) {
  return p.head_map_cyclic ? unit.key_head + member * p.H : unit.key_head * p.r + member;
}

template <class Params>
__device__ __forceinline__ Place place_of(const Params& p, const Unit& unit, int tile) {
  const Quotient q(tile, p.by_tiles_per_head, p.tiles_per_head);
  return {q.whole, head_of(p, unit, q.whole), q.rest << p.column_bits()};
}

/// Where a value head lies in [.., HV/r, r, ..].
struct Group {
  int group, member;
};

template <class Params>
__device__ __forceinline__ Group group_of(const Params& p, int head) {
  const Quotient q(head, p.by_r, p.r);
  return {q.whole, q.rest};
}

/// Place of column `local` of the CTA's.
template <class Params>
__device__ __forceinline__ Place place_of_column(const Params& p, const Unit& unit, int local) {
  Place place = place_of(p, unit, unit.first + (local >> p.column_bits()));
  place.column += local & ((1 << p.column_bits()) - 1);
  return place;
}

/// Whether column `local` of the CTA is one of V.
template <class Params>
__device__ __forceinline__ bool exists(const Params& p, const Unit& unit, int local,
                                       const Place& at) {
  return unit.first + (local >> p.column_bits()) < unit.last && at.column < p.V;
}

/// The CTA's shared memory, as TokenBufferSizes has it. Rows are in float32 and hold zeros past K and V.
struct TokenBuffer {
  float* partials;      ///< [2][2][warps][columns of a tile]: sums with k and with q
  uint4* conv;          ///< layer, several CTAs a unit: [K] pairs of q and k, new states
  float* rows;          ///< [tokens][row]: q, k, v of the CTA's columns; decays of key-wise gates
  float* gates;         ///< layer: [tokens][columns], norm weight times act(z)
  float* o;             ///< layer: [tokens][columns]
  float* squares;       ///< layer: [tokens][columns / 4], sums of o^2 over four columns
  int64_t* write;       ///< [tokens] slot of the state after that token; -1: none
  float *alpha, *beta;  ///< [tokens][r]
  int K, row, columns;

  __device__ __forceinline__ float* q(int t) const { return rows + t * row; }
  __device__ __forceinline__ float* k(int t) const { return rows + t * row + K; }
  __device__ __forceinline__ float* v(int t) const { return rows + t * row + 2 * K; }
  __device__ __forceinline__ float* decays(int t) const { return v(t) + columns; }
};

template <class C, class Params>
__device__ __forceinline__ TokenBuffer make_token_buffer(const Params& p) {
  TokenBuffer s;
  s.K = C::kK, s.columns = p.tiles() << p.column_bits();
  s.row = (C::kKeyGates ? 3 : 2) * C::kK + s.columns;
  const int tokens = p.max_tokens();
  s.partials = reinterpret_cast<float*>(ptx::dynamic_memory());
  s.rows = s.partials + (4 * C::kWarps << p.column_bits());
  s.conv = reinterpret_cast<uint4*>(s.rows);
  if (C::kLayer && p.ctas() > 1) s.rows += 4 * C::kK;
  s.gates = s.rows + tokens * s.row;
  s.o = s.gates + (C::kLayer ? tokens * s.columns : 0);
  s.squares = s.o + (C::kLayer ? tokens * s.columns : 0);
  float* const after = s.squares + (C::kLayer ? tokens * s.columns / 4 : 0);
  s.write = reinterpret_cast<int64_t*>(after);
  s.alpha = after + 2 * tokens;
  s.beta = s.alpha + tokens * p.r;
  return s;
}

/// Offset of an element of a row.
__device__ __forceinline__ int64_t row_offset(const TokenRows& t, const Sequence& seq, int token,
                                              int head, int64_t at) {
  return seq.batch * t.batch_stride + (seq.row + token) * t.token_stride + head * t.head_stride +
         at;
}

/// A number as it lies in memory (number_of()).
using RawNumber = uint32_t;

/// Element `index` of an array that the kernel does not write.
__device__ __forceinline__ RawNumber request_number(const void* data, int64_t index,
                                                    Number number) {
  if (number == Number::kFloat32) return __ldg(static_cast<const uint32_t*>(data) + index);
  return __ldg(static_cast<const uint16_t*>(data) + index);
}

/// Of an array that it may write.
__device__ __forceinline__ RawNumber request_written(const void* data, int64_t index,
                                                     Number number) {
  if (number == Number::kFloat32) return static_cast<const uint32_t*>(data)[index];
  return static_cast<const uint16_t*>(data)[index];
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_
