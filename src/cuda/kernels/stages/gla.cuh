// Runs simple GLA of 16-bit numbers in one pass by tensor cores: chunk_o that carries its states.
//
// Math      o = scale (diag(exp G) q S + (exp(G_i - G_j) q k^T, i >= j) v)
//           S <- exp(G_64) S + k^T diag(exp(G_64 - G)) v, blocks of 64 tokens
// Roles     a CTA of 128 threads has 64 columns of V of one (sequence, head); S is in registers in
//           float32: warp w has rows 16 w + 64 b; of o it has rows 16 w
// Pipeline  the next block's q, k, v on their way:
//           S rounded -> barrier -> P = q k^T, o = q S + P v, S += k^T v -> barrier Segments  where
//           sequences and heads are fewer than multiprocessors: one pass finds what each segment of
//           a sequence adds to S, join.cuh what each starts from, a second pass o
// Memory    tiles of 8 KB: two blocks of q, k (K / 64 each) and v, S (K / 64), o: 104 KB at
//           K = 128, two CTAs on a multiprocessor
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_GLA_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_GLA_CUH_

#include "cuda/device/carried_state.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/tile_rows.cuh"
#include "cuda/kernels/stages/outputs.cuh"

namespace sluice::cuda::stages {

using device::add_tokens, device::at, device::Chunk, device::decay, device::for_each_state_number;
using device::key_head, device::kMostTokens, device::LaneGates, device::load_carried;
using device::put_sums, device::request_gates, device::request_tile, device::scale_carried;
using device::slots_of, device::span_of, device::StageParams, device::StatePart;
using device::store_carried, device::store_rows, device::tokens_of;
using tile::put_part, tile::warp;
using tile::WarpOperand, tile::multiply, tile::WarpAccumulator;

/// Shared memory, tiles first. kBlocks: K / 64.
template <int kBlocks>
struct GlaMemory {
  struct Block {
    uint8_t q[kBlocks][kTileBytes], k[kBlocks][kTileBytes], v[kTileBytes];
  };
  Block ring[2];
  uint8_t S[kBlocks][kTileBytes], o[kTileBytes];
  float G[kMostTokens];
};

/// What a CTA works on.
struct GlaWork {
  int64_t head, keys, column;  ///< column: the first of 64
  int64_t slot;                ///< of the segment
  Chunk sequence;              ///< all tokens of the sequence, or of the segment, as one chunk
  bool first, last;            ///< of its sequence
};

template <int kBlocks>
__device__ __forceinline__ void request_block(const StageParams& p, const GlaWork& work, int row0,
                                              GlaMemory<kBlocks>& s, int turn) {
  auto& block = s.ring[turn];
#pragma unroll 1  // WHY: addresses of all tiles at once would spill
  for (int b = 0; b < kBlocks; ++b) {
    if (!p.segments.states_only) {
      request_tile<kBlockThreads>(ptx::shared_address(block.q[b]), p.q, work.sequence, work.keys,
                                  row0, b * kColumns);
    }
    request_tile<kBlockThreads>(ptx::shared_address(block.k[b]), p.k, work.sequence, work.keys,
                                row0, b * kColumns);
  }
  request_tile<kBlockThreads>(ptx::shared_address(block.v), p.values, work.sequence, work.head,
                              row0, work.column);
  ptx::close_copies();
}

/// o of the warp's 16 rows. G starts at the block, `before` is the sum up to it.
template <class Io, int kBlocks>
__device__ __forceinline__ void gla_outputs(const StageParams& p, const GlaWork& work, int row0,
                                            GlaMemory<kBlocks>& s, int turn, const float* G,
                                            float before) {
  auto& block = s.ring[turn];
  const int row = 16 * warp();
  const WarpOperand scores = scores_of<Io>(ptx::shared_address(block.q[0]),
                                           ptx::shared_address(block.k[0]), kBlocks, G, row, 0, 0);
  WarpAccumulator<8> out;
  out.clear();
#pragma unroll 1
  for (int b = 0; b < kBlocks; ++b) {
    multiply<Io, false, 8>(out, ptx::shared_address(block.q[b]), row, ptx::shared_address(s.S[b]),
                           0);
  }
  out.for_each_pair([&](int r, int, float& x, float& y) {
    const float factor = decay(G[row + r] - before);
    x *= factor, y *= factor;
  });
  multiply<Io, 8>(out, scores, ptx::shared_address(block.v), 0);
  out.for_each_pair([&](int, int, float& x, float& y) { x *= p.scale, y *= p.scale; });
  put_part<Io>(ptx::shared_address(s.o), row, 0, out);
  store_rows<8>(s.o, row, 0, p.o, work.sequence, work.head, row0 + row, work.column);
}

/// All tokens of a sequence or segment, 64 at a time; the sum of their gates. Chunks of 128 are two
/// blocks: what their second one starts from is S decayed by the first.
template <class Io, int kBlocks>
__device__ __forceinline__ float walk_gla(const StageParams& p, const GlaWork& work,
                                          GlaMemory<kBlocks>& s, StatePart<kBlocks, 8>& S) {
  const int tokens = work.sequence.tokens, C = p.C;
  const auto gates_from = [&](int row0) {
    Chunk chunk = work.sequence;
    chunk.row += row0;
    chunk.tokens = min(tokens - row0, C);
    return request_gates(p, chunk, work.head);
  };
  request_block<kBlocks>(p, work, 0, s, 0);
  LaneGates gates{};
  float sum = 0.0f;
  if (warp() == 0) gates = gates_from(0);
  for (int row0 = 0, turn = 0; row0 < tokens; row0 += kRows, turn ^= 1) {
    const int inside = row0 % C;  // the chunk's
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (p.segments.states_only) continue;
      put_part<Io>(ptx::shared_address(s.S[b]), 16 * warp(), 0, S[b]);
    }
    if (warp() == 0 && inside == 0) put_sums(p, gates, s.G);
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: tokens, S and G are there
    if (row0 + kRows < tokens) request_block<kBlocks>(p, work, row0 + kRows, s, turn ^ 1);
    const bool next = inside + kRows == C && row0 + kRows < tokens;
    if (warp() == 0 && next) gates = gates_from(row0 + kRows);
    const float* const G = s.G + inside;
    const float before = inside == 0 ? 0.0f : G[-1], last = G[kRows - 1];
    sum += last - before;
    if (!p.segments.states_only) gla_outputs<Io, kBlocks>(p, work, row0, s, turn, G, before);
    scale_carried<kBlocks, 8>(S, decay(last - before));
    const auto& block = s.ring[turn];
    if (p.has_gates) {
      add_tokens<Io, true, kBlocks, 8>(S, ptx::shared_address(block.k[0]),
                                       ptx::shared_address(block.v), 0, G, last);
    } else {
      add_tokens<Io, false, kBlocks, 8>(S, ptx::shared_address(block.k[0]),
                                        ptx::shared_address(block.v), 0, G, last);
    }
    __syncthreads();  // SYNC: nobody reads S, G or these tokens
  }
  return sum;
}

/// What a CTA has: a sequence or a segment of one. False: an empty slot.
__device__ __forceinline__ bool find_gla_work(const StageParams& p, int64_t item, GlaWork* work) {
  const int64_t slices = p.V / kColumns;
  work->head = item / slices % p.HV;
  work->keys = key_head(p, work->head);
  work->column = item % slices * kColumns;
  work->slot = item / slices / p.HV;
  work->first = work->last = true;
  if (p.segments.tokens == 0) {
    work->sequence.tokens = static_cast<int>(tokens_of(p, work->slot, &work->sequence));
    return true;
  }
  work->sequence = span_of(p, work->slot, p.segments.tokens, p.segments.slots);
  const Chunk& segment = work->sequence;
  Chunk whole;
  const int64_t tokens = tokens_of(p, segment.seq, &whole);
  work->first = segment.number == 0;
  work->last = segment.number * p.segments.tokens + segment.tokens >= tokens;
  return work->first || segment.tokens > 0;
}

/// Place of S(k, column) of a segment's state.
__device__ __forceinline__ float* segment_number(const StageParams& p, const GlaWork& work, int k,
                                                 int column) {
  return p.segments.states + ((work.slot * p.HV + work.head) * p.K + k) * p.V + work.column +
         column;
}

/// Finds what a segment adds to the state that it starts from.
template <class Io, int kBlocks>
__device__ __forceinline__ void run_segment(const StageParams& p, const GlaWork& work,
                                            GlaMemory<kBlocks>& s, StatePart<kBlocks, 8>& S) {
  for_each_state_number<kBlocks, 8>(S, [](int, int, float& x) { x = 0.0f; });
  const float sum = walk_gla<Io, kBlocks>(p, work, s, S);
  for_each_state_number<kBlocks, 8>(
      S, [&](int k, int column, float& x) { *segment_number(p, work, k, column) = x; });
  if (threadIdx.x == 0) p.segments.decays[work.slot * p.HV + work.head] = sum;
}

/// Outputs of a padded sequence.
__device__ __forceinline__ void zero_outputs(const StageParams& p, const GlaWork& work) {
  auto* o = static_cast<uint16_t*>(p.o.data) +
            at(p.o, work.sequence.batch, work.sequence.row, work.head) + work.column;
  for (int64_t i = threadIdx.x; i < int64_t{work.sequence.tokens} * 8; i += kBlockThreads) {
    *reinterpret_cast<uint4*>(o + i / 8 * p.o.token_stride + i % 8 * 8) = uint4{};
  }
}

/// Items are sequences (or segments) x heads x 64 columns of V.
template <class Io, int kBlocks>
__global__ void __launch_bounds__(kBlockThreads, 2)
    gla_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<GlaMemory<kBlocks>*>(dynamic_shared);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    GlaWork work{};
    if (!find_gla_work(p, item, &work)) continue;
    const device::Sequence slots = slots_of(p, work.sequence.seq);
    if (slots.padded) {
      if (!p.segments.states_only) zero_outputs(p, work);
      continue;
    }
    StatePart<kBlocks, 8> S;
    if (p.segments.states_only) {
      if (!work.last) run_segment<Io, kBlocks>(p, work, s, S);
      continue;
    }
    if (work.first) {
      load_carried<kBlocks, 8>(p, slots.read, work.head, work.column, S);
    } else {
      for_each_state_number<kBlocks, 8>(
          S, [&](int k, int column, float& x) { x = *segment_number(p, work, k, column); });
    }
    if (work.sequence.tokens > 0) walk_gla<Io, kBlocks>(p, work, s, S);
    if (work.last) store_carried<kBlocks, 8>(p, slots.write, work.head, work.column, S);
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_GLA_CUH_
