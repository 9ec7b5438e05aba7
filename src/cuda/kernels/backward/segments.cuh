// Finds the segments of cut sequences, from lengths alone: no table is made; and whether a chunk is
// inside the window that a launch computes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_CUH_

#include "cuda/device/chunks.cuh"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/segments.h"

namespace sluice::cuda::backward {

using device::Chunk, device::StageParams;

/// A sequence and its cut.
struct CutSequence {
  Chunk all;           ///< its tokens as one chunk
  int chunks;          ///< of the sequence
  int length, count;   ///< chunks of a segment, segments: one at least
  int64_t boundaries;  ///< of the sequences before it
};

/// Whether lengths differ from sequence to sequence and those of segments do not: then sequence n
/// has the slots from floor(cu[n] / length) + n on, as span_of() has it, and the boundaries from
/// floor(cu[n] / length) on: enough, as it has ceil(l / L) - 1 <= floor((c + l) / L) - floor(c / L).
__device__ __forceinline__ bool counts_rows(const StageParams& p, const SegmentCut& cut) {
  return p.cu_seqlens.data != nullptr && cut.length > 0;
}

__device__ __forceinline__ CutSequence cut_sequence(const StageParams& p, const SegmentCut& cut,
                                                    int64_t n) {
  CutSequence s;
  s.all.tokens = static_cast<int>(device::tokens_of(p, n, &s.all));
  s.chunks = (s.all.tokens + kTokens - 1) / kTokens;
  s.length = cut.length > 0 ? cut.length : max((s.chunks + cut.count - 1) / cut.count, 1);
  s.count = max((s.chunks + s.length - 1) / s.length, 1);
  s.boundaries = counts_rows(p, cut) ? s.all.row / (int64_t{kTokens} * s.length)
                                     : n * ((cut.length > 0 ? s.count : cut.count) - 1);
  return s;
}

/// The sequence that a slot belongs to, and which of its segments it is: its count or more if it is
/// none.
__device__ __forceinline__ int64_t sequence_of_slot(const StageParams& p, const SegmentCut& cut,
                                                    int64_t slot, int* number) {
  if (counts_rows(p, cut)) {
    const Chunk span = device::span_of(p, slot, int64_t{kTokens} * cut.length, 0);
    *number = static_cast<int>(span.number);
    return span.seq;
  }
  const int64_t each = cut.length > 0 ? cut_sequence(p, cut, 0).count : cut.count;
  *number = static_cast<int>(slot % each);
  return slot / each;
}

/// Likewise of a boundary.
__device__ __forceinline__ int64_t sequence_of_boundary(const StageParams& p, const SegmentCut& cut,
                                                        int64_t boundary, int* number) {
  if (!counts_rows(p, cut)) {
    const int64_t each = (cut.length > 0 ? cut_sequence(p, cut, 0).count : cut.count) - 1;
    *number = static_cast<int>(boundary % each);
    return boundary / each;
  }
  const int64_t rows = int64_t{kTokens} * cut.length;
  // low has a boundary at or before this one, or none; high begins past it. Of several that begin
  // at the same one only the last can have any.
  int64_t low = 0, high = p.N;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (device::first_row(p, middle) / rows <= boundary ? low : high) = middle;
  }
  *number = static_cast<int>(boundary - device::first_row(p, low) / rows);
  return low;
}

/// Whether a launch computes a chunk.
__device__ __forceinline__ bool is_inside(const Window& window, const device::Chunk& chunk) {
  return !window.exists() || (chunk.row >= window.first && chunk.row < window.end);
}

/// Where S and D' of the chunk that begins at a row lie among those of a window: chunk slots, as
/// span_of() has them.
__device__ __forceinline__ int64_t state_in_window(const Window& window, int64_t seq, int64_t row) {
  return row / kTokens + seq - window.first / kTokens;
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_CUH_
