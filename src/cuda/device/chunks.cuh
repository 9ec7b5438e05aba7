// Finds which tokens, head and part a CTA has, and sums the gates of its chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_CHUNKS_CUH_
#define SLUICE_CUDA_DEVICE_CHUNKS_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/stage_params.h"
#include "cuda/device/store.cuh"
#include "cuda/tile/lanes.cuh"

namespace sluice::cuda::device {

inline constexpr int kMostTokens = 128;  ///< of a chunk

/// Tokens row .. row + tokens - 1 of a batch entry: a chunk of a sequence.
struct Chunk {
  int64_t seq, batch, row;
  int64_t number;  ///< in its sequence
  int tokens;      ///< none: the slot is empty
};

/// Offset of element 0 of a row of tokens.
__device__ __forceinline__ int64_t at(const TokenRows& rows, int64_t batch, int64_t row,
                                      int64_t head) {
  return batch * rows.batch_stride + row * rows.token_stride + head * rows.head_stride;
}

__device__ __forceinline__ int64_t key_head(const StageParams& p, int64_t head) {
  return p.head_map_cyclic ? head % p.H : head / p.r;
}

/// First row of packed sequence n, clamped to the tensors whatever cu_seqlens holds.
__device__ __forceinline__ int64_t first_row(const StageParams& p, int64_t n) {
  return min(max(load_index(p.cu_seqlens, n), int64_t{0}), p.T);
}

/// The span of `length` tokens of a slot. Without cu_seqlens slot s is span s % slots of sequence s
/// / slots. Packed sequence n has the slots from floor(cu[n] / length) + n on: enough, as ceil(l /
/// L) <= floor((c + l) / L) - floor(c / L) + 1, and ascending, so that a search finds n; some stay
/// empty.
__device__ __forceinline__ Chunk span_of(const StageParams& p, int64_t slot, int64_t length,
                                         int64_t slots) {
  int64_t end = p.T;
  Chunk span{};
  if (p.cu_seqlens.data == nullptr) {
    span.seq = span.batch = slot / slots;
    span.number = slot % slots;
  } else {
    int64_t low = 0, high = p.N;  // low has a slot at or before this one, high has not
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (first_row(p, middle) / length + middle <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const int64_t begin = first_row(p, low);
    end = max(first_row(p, low + 1), begin);
    span.seq = low;
    span.number = slot - begin / length - low;
    span.row = begin;
  }
  span.row += span.number * length;
  span.tokens = static_cast<int>(max(min(end - span.row, length), int64_t{0}));
  return span;
}
__device__ __forceinline__ Chunk chunk_of(const StageParams& p, int64_t slot) {
  return span_of(p, slot, p.C, p.slots);
}

/// The whole of sequence n as one range of tokens, in `row` and the return value.
__device__ __forceinline__ int64_t tokens_of(const StageParams& p, int64_t n, Chunk* first) {
  *first = {n, p.cu_seqlens.data == nullptr ? n : 0, 0, 0, 0};
  if (p.cu_seqlens.data == nullptr) return p.T;
  first->row = first_row(p, n);
  return max(first_row(p, n + 1), first->row) - first->row;
}

/// Chunks of the sequences before `seq`, where h counts them. Whole warps; all lanes get it.
__device__ __forceinline__ int64_t chunks_before(const StageParams& p, int64_t seq) {
  if (p.cu_seqlens.data == nullptr) return 0;
  int count = 0;  // BOUND: at most T / C + N chunks, and launches have fewer than 2^31
  for (int64_t n = tile::lane(); n < seq; n += 32) {
    const int64_t begin = first_row(p, n);
    count += static_cast<int>((max(first_row(p, n + 1), begin) - begin + p.C - 1) / p.C);
  }
  for (int step = 16; step > 0; step /= 2) count += __shfl_xor_sync(~0u, count, step);
  return count;
}

/// Offset of the state that enters a chunk; `before` is chunks_before() of its sequence.
__device__ __forceinline__ int64_t state_at(const StageParams& p, const Chunk& chunk,
                                            int64_t before, int64_t head) {
  return chunk.batch * p.h.batch_stride + (before + chunk.number) * p.h.chunk_stride +
         head * p.h.head_stride;
}

/// Whether that state lies inside h.
__device__ __forceinline__ bool has_state(const StageParams& p, const Chunk& chunk,
                                          int64_t before) {
  return before + chunk.number < p.h.room;
}

/// Where sequence n's state comes from and goes to.
__device__ __forceinline__ Sequence slots_of(const StageParams& p, int64_t n) {
  Sequence sequence{};
  sequence.index = n;
  find_slots(p.state, request_slots(p.state, n), &sequence);
  return sequence;
}

__device__ __forceinline__ float token_number(const TokenRows& rows, const Chunk& chunk,
                                              int64_t head, int token) {
  return load_number(rows.data, at(rows, chunk.batch, chunk.row + token, head), rows.number);
}

inline constexpr int kLaneTokens = kMostTokens / 32;  ///< lane l has tokens 4 l .. 4 l + 3

/// The numbers that a lane's G comes from, on their way: gates, or sums where those are given.
struct LaneGates {
  float x[kLaneTokens];
};
__device__ __forceinline__ LaneGates request_gates(const StageParams& p, const Chunk& chunk,
                                                   int64_t head) {
  LaneGates gates{};
  const TokenRows& rows = p.g_cumsum.data != nullptr ? p.g_cumsum : p.gate;
#pragma unroll
  for (int i = 0; i < kLaneTokens; ++i) {
    const int token = tile::lane() * kLaneTokens + i;
    const bool wanted = token < chunk.tokens || p.g_cumsum.data != nullptr;
    if (rows.data == nullptr || !wanted) continue;
    gates.x[i] = token_number(rows, chunk, head, min(token, chunk.tokens - 1));
  }
  return gates;
}

/// G[i] of tokens 0 .. 127 of the chunk, those past its end as the last one's, by one warp. Zeros
/// without gates.
__device__ __forceinline__ void put_sums(const StageParams& p, LaneGates gates,
                                         float (&G)[kMostTokens]) {
  const bool summed = p.g_cumsum.data != nullptr;
  float sum = 0.0f;
#pragma unroll
  for (float& x : gates.x) {
    if (summed) continue;
    sum += clamped_gate(x);
    x = sum;
  }
  const float before = summed ? 0.0f : tile::sum_before_lane(sum);
  const int lane = tile::lane();
#pragma unroll
  for (int i = 0; i < kLaneTokens; ++i) G[lane * kLaneTokens + i] = before + gates.x[i];
}

__device__ __forceinline__ void load_sums(const StageParams& p, const Chunk& chunk, int64_t head,
                                          float (&G)[kMostTokens]) {
  put_sums(p, request_gates(p, chunk, head), G);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_CHUNKS_CUH_
