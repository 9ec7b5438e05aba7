// What a CTA has to do, and its shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_

#include "cuda/device/sequence.cuh"
#include "cuda/kernels/decode/params.h"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::decode {

using device::Sequence;

/// Tiles first .. last - 1 of one (sequence, key head). Tile i is 16 columns of value head
/// i / tiles_per_head of that key head.
struct Unit {
  Sequence seq;
  int key_head;
  int rank;  ///< which of the unit's CTAs
  int first, last;
};

__device__ __forceinline__ Unit unit_of(const DecodeParams& p) {
  Unit unit;
  // BOUND: N H ctas < 2^31.
  const int block = static_cast<int>(blockIdx.x), index = block / p.grid.ctas;
  unit.rank = block % p.grid.ctas;
  unit.key_head = index % p.H;
  unit.seq = device::find_sequence(p.rows, p.state, index / p.H);
  const int tiles = p.r * p.tiles_per_head;
  unit.first = min(unit.rank * p.grid.tiles, tiles);
  unit.last = min(unit.first + p.grid.tiles, tiles);
  return unit;
}

/// Where a tile, or a column of the CTA, lies in V.
struct Place {
  int member;  ///< of the key head's value heads
  int head;    ///< value head
  int column;  ///< of that head, may be past V in its last tile
};

__device__ __forceinline__ Place place_of(const DecodeParams& p, const Unit& unit, int tile) {
  const int member = tile / p.tiles_per_head;
  const int head = p.head_map_cyclic ? unit.key_head + member * p.H : unit.key_head * p.r + member;
  return {member, head, tile % p.tiles_per_head * kTileColumns};
}

/// Place of column `local` of the CTA's, 0 <= local < 16 tiles.
__device__ __forceinline__ Place place_of_column(const DecodeParams& p, const Unit& unit,
                                                 int local) {
  Place place = place_of(p, unit, unit.first + local / kTileColumns);
  place.column += local % kTileColumns;
  return place;
}

/// The CTA's shared memory, as StageSizes has it. Rows are in float32 and hold zeros past K and V.
struct Stage {
  float* rows;          ///< [tokens][row]: q, k, v of the CTA's columns; o replaces v
  float* gates;         ///< layer: [tokens][columns], norm weight times act(z)
  int64_t* write;       ///< [tokens] slot of the state after that token; -1: none
  float *alpha, *beta;  ///< [tokens][r]
  float* partial;       ///< layer: [tokens][tiles], sums of o^2 over a tile
  int K, row, columns, tiles;

  __device__ __forceinline__ float* q(int t) const { return rows + t * row; }
  __device__ __forceinline__ float* k(int t) const { return rows + t * row + K; }
  __device__ __forceinline__ float* v(int t) const { return rows + t * row + 2 * K; }
};

template <class C>
__device__ __forceinline__ Stage make_stage(const DecodeParams& p) {
  Stage s;
  s.K = C::kK, s.tiles = p.grid.tiles, s.columns = p.grid.tiles * kTileColumns;
  s.row = 2 * C::kK + s.columns;
  const int tokens = p.rows.max_tokens;
  s.rows = reinterpret_cast<float*>(ptx::dynamic_memory());
  s.gates = s.rows + tokens * s.row;
  float* const after = s.gates + (C::kLayer ? tokens * s.columns : 0);
  s.write = reinterpret_cast<int64_t*>(after);
  s.alpha = after + 2 * tokens;
  s.beta = s.alpha + tokens * p.r;
  s.partial = s.beta + tokens * p.r;
  return s;
}

/// Element of a row of numbers.
__device__ __forceinline__ float load_element(const TokenRows& t, const Sequence& seq, int token,
                                              int head, int64_t at) {
  const int64_t offset =
      seq.batch * t.batch_stride + (seq.row + token) * t.token_stride + head * t.head_stride + at;
  return device::load_number(t.data, offset, t.number);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_UNIT_CUH_
