// Describes how the sequences of chunk_backward are cut into segments, and which window of chunks a
// launch computes, for host and kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_H_

#include <cstdint>

#include "cuda/kernels/backward/config.h"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::backward {

/// Sequences cut into segments of whole chunks, and what is kept at the boundaries between those of
/// one sequence. All zeros: no sequence is cut.
struct SegmentCut {
  int32_t length;  ///< chunks of a segment, of which a sequence's last may have fewer; 0: by count
  int32_t count;   ///< segments of a sequence that has so many chunks
  int64_t slots;   ///< segments of all sequences, at most
  int64_t boundaries;  ///< likewise
  float* states;       ///< [boundaries,HV,K,V]
  float* gradients;    ///< [boundaries,HV,K,V], of those states
  /// [boundaries,HV,K,K]: what a segment that another one precedes does to the state at its end's
  /// boundary, S' = M S + ..: [column][row], as the fold of states reads it; [row][column], as that
  /// of gradients does.
  float *by_columns, *by_rows;

  constexpr bool exists() const noexcept { return slots > 0; }
};

/// What a launch of the chains computes.
enum class ChainPass : int32_t {
  kWhole,     ///< whole sequences
  kMaps,      ///< of each segment N and M, or the gradient N; first and last segments themselves
  kSegments,  ///< the other segments, from what the boundaries hold
  kAll,  ///< every segment, likewise: in windows, where kMaps only computes what boundaries hold
};

/// 64 or 128 columns of a (segment, head) or (sequence, head) that a pass has, at most. The two
/// chains differ in M, which states have in the first pass.
constexpr int64_t chain_items(const SegmentCut& cut, ChainPass pass, bool has_factors,
                              int64_t sequences, int64_t heads, int64_t slices) noexcept {
  if (pass == ChainPass::kWhole) return sequences * heads * slices;
  if (pass == ChainPass::kSegments) return cut.boundaries * heads * slices;
  const bool factors = has_factors && pass == ChainPass::kMaps;
  return (cut.slots + (factors ? cut.boundaries : 0)) * heads * slices;
}

/// Most CTAs of a launch of both chains over segments, as rounds of the GPU: each begins anew.
inline constexpr int kMostRounds = 8;

/// Columns of V that a CTA of the fold has, and chains that it is asked for: sequences, or where
/// there are fewer of those boundaries, whose first one stands for its sequence.
inline constexpr int kFoldColumns = 8;
constexpr int64_t fold_chains(const SegmentCut& cut, int64_t sequences) noexcept {
  return sequences < cut.boundaries ? sequences : cut.boundaries;
}

/// The chunks that a launch computes: those whose first row is one of a window's. The workspace holds
/// rows and states of a window's chunks alone; places of rows are such that a row has the same number
/// everywhere. All zeros: there are no windows, and a launch computes all chunks.
struct Window {
  int64_t first, end;  ///< rows; multiples of a chunk's
  /// [HV,K,V] float32, what is passed on at the borders to the windows before and behind this one. A
  /// border lies in one sequence at most: first it has the sequence's state, then, when the window
  /// behind it has used that, the gradient.
  float *before, *after;
  bool sends;  ///< whether chains store states and rows; else they only pass the state on

  SLUICE_HOST_DEVICE bool exists() const noexcept { return end > 0; }
};

/// Rows from a window's first on that its chunks may have: those of a pack begin anywhere.
SLUICE_HOST_DEVICE int64_t window_rows(const Window& window, bool packed) noexcept {
  return window.end - window.first + (packed ? kTokens : 0);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SEGMENTS_H_
