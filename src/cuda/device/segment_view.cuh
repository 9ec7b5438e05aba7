// Reads the segment table of a call for its passes: as the planner left it or, of equal segments
// (CutRule::kEqual), by arithmetic.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_SEGMENT_VIEW_CUH_
#define SLUICE_CUDA_DEVICE_SEGMENT_VIEW_CUH_

#include "cuda/device/load.cuh"
#include "cuda/device/prefill_params.h"
#include "cuda/device/segments.hpp"

namespace sluice::cuda::device {

/// Chunks of sequence n.
__device__ __forceinline__ uint32_t chunks_of(const PrefillParams& p, int n) {
  if (p.cu_seqlens.data == nullptr) return chunks_between(0, p.T, p.T);
  return chunks_between(load_index(p.cu_seqlens, n), load_index(p.cu_seqlens, n + 1), p.T);
}

/// What the passes ask of the segment table.
struct SegmentView {
  const PrefillParams& p;
  /// PERF false in kernels whose calls have no first segments that lead: what runs for the first time
  /// is fetched from memory, and arithmetic of leading segments held up each launch by 1 to 3 us.
  bool may_lead = true;

  __device__ __forceinline__ bool is_equal() const {
    return p.segments.cut.rule == CutRule::kEqual;
  }
  /// Whether horizons and transitions lie in tables: where heads may forget, or lengths differ.
  __device__ __forceinline__ bool has_lists() const {
    return !is_equal() || p.segments.cut.may_forget;
  }
  /// Segments into which a sequence may be cut, and its boundaries then.
  __device__ __forceinline__ int pieces() const { return p.segments.cut.count; }
  __device__ __forceinline__ int cuts() const { return pieces() - 1; }

  /// Whether first segments run beside the transition pass.
  __device__ __forceinline__ bool leads() const { return lead() > 0; }
  __device__ __forceinline__ int lead() const { return may_lead ? p.segments.cut.lead : 0; }

  __device__ __forceinline__ uint32_t segments() const {
    return is_equal() ? static_cast<uint32_t>(p.N * pieces()) : p.segments.header->segments;
  }
  /// The segment at a position of the order; one of -1 chunks where a sequence is too short.
  __device__ __forceinline__ Segment segment(int position) const {
    if (!is_equal()) return p.segments.segments[position];
    // Those that lead come first.
    const int first = leads() ? p.N : 0, each = leads() ? cuts() : pieces();
    const int seq = position < first ? position : (position - first) / each;
    const int at = position < first ? 0 : position - first - seq * each + (leads() ? 1 : 0);
    return equal_segment(p.segments.cut, lead(), seq, chunks_of(p, seq), at);
  }

  __device__ __forceinline__ int boundaries() const {
    return is_equal() ? p.N * cuts() : static_cast<int>(p.segments.header->boundaries);
  }
  /// The segment that ends at a boundary; its `after` is -1 where the sequence is too short for it.
  __device__ __forceinline__ Segment left(int boundary) const {
    if (!is_equal()) return p.segments.left[boundary];
    const int seq = boundary / cuts();
    return equal_segment(p.segments.cut, lead(), seq, chunks_of(p, seq), boundary - seq * cuts());
  }
  __device__ __forceinline__ int horizon(int boundary, int head) const {
    return has_lists() ? p.segments.horizon[int64_t{boundary} * p.HV + head] : -1;
  }

  __device__ __forceinline__ uint32_t chains() const {
    return is_equal() ? static_cast<uint32_t>(p.N) : p.segments.header->chains;
  }
  __device__ __forceinline__ Chain chain(int i) const {
    if (!is_equal()) return p.segments.chains[i];
    return {i * cuts(), equal_count(p.segments.cut, chunks_of(p, i)) - 1};
  }
  /// The sequence of a chain.
  __device__ __forceinline__ int sequence(const Chain& chain) const {
    return is_equal() ? chain.first / cuts() : p.segments.left[chain.first].seq;
  }

  /// Boundaries of a sequence whose N the transition pass computes. The first one has no M, and no N
  /// either where the first segment leads.
  __device__ __forceinline__ int sums() const { return leads() ? cuts() - 1 : cuts(); }
  /// Work items of the transition pass for one M.
  __device__ __forceinline__ int factor_items() const {
    const CutRequest& request = p.segments.cut;
    return request.scalar_factors ? 0 : p.K / request.transition_columns;
  }
  __device__ __forceinline__ uint32_t transitions() const {
    if (has_lists()) return p.segments.header->transitions;
    const int columns = p.segments.cut.transition_columns;
    return static_cast<uint32_t>(p.N * p.HV *
                                 (sums() * (p.V / columns) + (cuts() - 1) * factor_items()));
  }
  /// Work of the transition pass. Without a list: all N, then all M, heads and columns first.
  __device__ __forceinline__ Transition transition(int ticket) const {
    if (has_lists()) return p.segments.transitions[ticket];
    const int columns = p.segments.cut.transition_columns, slices = p.V / columns,
              added = p.N * sums() * p.HV * slices;
    const auto past_first = [&](int inner) { return inner + inner / max(cuts() - 1, 1) + 1; };
    if (ticket < added) {
      const int pair = ticket / slices, inner = pair / p.HV;
      return {leads() ? past_first(inner) : inner, pair % p.HV, (ticket - pair * slices) * columns,
              0};
    }
    const int parts = factor_items(), pair = (ticket - added) / parts;
    return {past_first(pair / p.HV), pair % p.HV, (ticket - added - pair * parts) * columns, 1};
  }

  /// Writes the counts that a caller may read after the call, where no planner has; one thread.
  __device__ __forceinline__ void leave_counts() const {
    if (!is_equal()) return;
    // One sequence, or several of the same length.
    const auto segments = static_cast<uint32_t>(p.N * equal_count(p.segments.cut, chunks_of(p, 0)));
    p.segments.header->segments = segments;
    p.segments.header->boundaries = segments - static_cast<uint32_t>(p.N);
    if (!has_lists()) p.segments.header->transitions = transitions();
  }
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_SEGMENT_VIEW_CUH_
