// Finds which tokens a CTA of a compact kernel has, and their numbers G and beta.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUH_

#include <cstddef>

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/kernels/stages/compact.h"
#include "cuda/kernels/stages/config.h"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::stages {

using device::clamped_gate, device::kLaneTokens, device::Number, tile::sum_before_lane;
using tile::kTile, tile::lane;

/// Tokens row .. row + tokens - 1 of batch entry blockIdx.z.
struct CompactSpan {
  int row, tokens;
};

/// First row of packed sequence n, clamped to the tensors.
__device__ __forceinline__ int compact_row(const CompactShape& s, int n) {
  return min(max(__ldg(s.cu_seqlens + n * s.cu_step), 0), s.T);
}

/// span_of() a slot of packed sequences: whole warps, which look at 32 sequences at a time.
__device__ __forceinline__ CompactSpan packed_span(const CompactShape& s, int slot) {
  int low = 0, high = s.N;  // low has a slot at or before this one, high has not
  while (high - low > 1) {
    const int step = (high - low + 31) / 32, n = low + lane() * step;
    const bool begun = n < high && compact_row(s, n) / kCompactChunk + n <= slot;
    const int count = __popc(__ballot_sync(~0u, begun));
    low += max(count - 1, 0) * step;
    high = min(low + step, high);
  }
  const int begin = compact_row(s, low), end = max(compact_row(s, low + 1), begin);
  const int row = begin + (slot - begin / kCompactChunk - low) * kCompactChunk;
  return {row, row < begin ? 0 : min(end - row, kCompactChunk)};
}

/// Chunk blockIdx.y; no tokens: the slot is empty.
__device__ __forceinline__ CompactSpan compact_span(const CompactShape& s) {
  const auto slot = static_cast<int>(blockIdx.y);
  if (s.cu_seqlens != nullptr) return packed_span(s, slot);
  return {slot * kCompactChunk, min(s.T - slot * kCompactChunk, kCompactChunk)};
}

/// Element 0 of a row of the CTA's batch entry.
__device__ __forceinline__ uint64_t compact_at(const CompactRows& rows, int row, int head) {
  const uint32_t token = blockIdx.z * rows.batch_tokens + static_cast<uint32_t>(row);
  return uint64_t{token} * rows.token_stride +
         uint64_t{static_cast<uint32_t>(head)} * rows.head_stride;
}

__device__ __forceinline__ int compact_key_head(const CompactShape& s, int head) {
  if (s.r == 1) return head;
  return s.head_map_cyclic ? head % s.H : head / s.r;
}

struct CompactTokens {
  float G[kCompactChunk], beta[kCompactChunk];
};
static_assert(offsetof(CompactTokens, beta) == 4 * kCompactChunk);

/// What a lane of the first warp reads of a chunk's numbers, on its way: those of four tokens,
/// gates by the first 16 lanes, betas by the others. Past the end they are the last one's, which
/// nobody looks at.
struct CompactRequest {
  float x[kLaneTokens];
};
__device__ __forceinline__ CompactRequest request_numbers(const CompactParams& p,
                                                          const CompactSpan& span, int head) {
  const bool gates = lane() < 16;
  const CompactNumbers& from = gates ? p.gate : p.beta;
  const float absent = gates ? 0.0f : 1.0f;
  CompactRequest request{{absent, absent, absent, absent}};
  if (from.rows.data == nullptr) return request;
  const uint64_t first = compact_at(from.rows, span.row, head);
  uint32_t element[kLaneTokens];
#pragma unroll
  for (int i = 0; i < kLaneTokens; ++i) {
    const int token = min(lane() % 16 * kLaneTokens + i, span.tokens - 1);
    element[i] = static_cast<uint32_t>(token) * from.rows.token_stride;
  }
  if (from.number == Number::kFloat32) {
    const auto* const data = static_cast<const float*>(from.rows.data) + first;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) request.x[i] = __ldg(data + element[i]);
  } else {
    const auto* const data = static_cast<const unsigned short*>(from.rows.data) + first;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      request.x[i] = device::from_bits(from.number, __ldg(data + element[i]));
    }
  }
  return request;
}

/// G, as put_sums() has it, and beta; the first warp.
__device__ __forceinline__ void put_numbers(const CompactParams& p, CompactRequest request,
                                            CompactTokens& s) {
  const bool gates = lane() < 16;
  if (!p.is_summed) {
    float x[kLaneTokens], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      sum += clamped_gate(request.x[i]);
      x[i] = sum;
    }
    const float before = sum_before_lane(sum);
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) request.x[i] = gates ? before + x[i] : request.x[i];
  }
  // WHY one array: beta lies behind G.
  *reinterpret_cast<float4*>(s.G + lane() * kLaneTokens) = {request.x[0], request.x[1],
                                                            request.x[2], request.x[3]};
}

/// Requests a chunk's rows of 64 kTiles columns, zeros past its end, of which no memory is looked
/// at; a CTA of 128 threads.
template <int kTiles>
__device__ __forceinline__ void request_rows(uint32_t tiles, const CompactRows& rows,
                                             const CompactSpan& span, int head) {
  const auto thread = static_cast<int>(threadIdx.x);
  int row = thread / 8;
  const auto* from = static_cast<const uint16_t*>(rows.data) +
                     compact_at(rows, span.row + row, head) + thread % 8 * 8;
  uint32_t to =
      tiles + tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(thread % 8));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool inside = row < span.tokens;
#pragma unroll
    for (int b = 0; b < kTiles; ++b) {
      ptx::copy_async_16(to + static_cast<uint32_t>(b) * kTile, from + b * kColumns, inside);
    }
    row += 16, to += 16 * tile::kRowBytes;
    from += 16 * rows.token_stride;
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_COMPACT_CUH_
