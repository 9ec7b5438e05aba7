// Deals out the work items of a prefill, and reads small inputs that depend on the sequence or head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_WORK_ITEMS_CUH_
#define SLUICE_CUDA_DEVICE_WORK_ITEMS_CUH_

#include "cuda/device/segment_view.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/pipeline.cuh"

namespace sluice::cuda::device {

/// The state that enters a work item.
enum class StateSource : int32_t { kInitial, kKept, kZero, kIdentity, kBoundary };
/// Where the state that leaves it goes: kAdded and kFactor are N and M of segments.hpp.
enum class StateSink : int32_t { kFinal, kNone, kAdded, kFactor };

/// Some columns of V of one (sequence, value head), all of its rows or a segment's.
struct WorkItem {
  int32_t seq;  ///< -1: no more work
  int32_t head;
  int32_t batch;  ///< batch entry that holds the rows
  int32_t row;    ///< first row within the batch entry
  int32_t tokens;
  int32_t padded;         ///< 1: write zero rows and nothing else
  int32_t column;         ///< first of its columns of V
  int32_t first;          ///< chunk of the sequence that its chunk 0 is
  int32_t skip;           ///< chunks at its start whose outputs and checkpoints are another item's
  int32_t before, after;  ///< boundaries, see Segment
  StateSource source;
  StateSink sink;

  __device__ __forceinline__ bool valid() const { return seq >= 0; }
  /// Chunks to compute.
  __device__ __forceinline__ int chunks() const { return padded ? 0 : (tokens + 63) >> 6; }
  /// Valid rows of chunk c.
  __device__ __forceinline__ int rows(int c) const { return min(tokens - c * 64, 64); }
};

/// Key head that value head h reads.
__device__ __forceinline__ int key_head(const PrefillParams& p, int head) {
  return p.head_map_cyclic ? head % p.H : head / p.r;
}

/// Where M of a boundary lies, or the initial state of the sequence if it is the first one.
__device__ __forceinline__ float* factor_at(const PrefillParams& p, int boundary, int head) {
  return p.segments.factor + (int64_t{boundary} * p.HV + head) * factor_size(p.K, p.V);
}

/// Whether sequence n starts from zeros.
__device__ __forceinline__ bool starts_from_zeros(const PrefillParams& p, int64_t n) {
  return p.initial.data == nullptr ||
         (p.has_initial_state != nullptr && p.has_initial_state[n * p.has_initial_stride] == 0);
}

/// Whether a slot is none of a pool's. PERF one comparison: differences below zero are large.
__device__ __forceinline__ bool is_padding(const PrefillParams& p, int64_t slot, uint64_t span) {
  return static_cast<uint64_t>(slot) - static_cast<uint64_t>(p.pad_below) >= span;
}

/// First element of the initial state of a head of sequence n.
__device__ __forceinline__ int64_t initial_at(const PrefillParams& p, int64_t n, int head) {
  const int64_t slot = p.read_slots.data == nullptr ? n : load_index(p.read_slots, n);
  return slot * p.initial.slot_stride + int64_t{head} * p.K * p.V;
}

/// Rows of sequence n, clamped to the tensors whatever cu_seqlens holds.
__device__ __forceinline__ WorkItem locate(const PrefillParams& p, int seq, int head) {
  WorkItem item{};
  item.seq = item.batch = seq;
  item.head = head;
  item.tokens = p.T;
  item.before = item.after = -1;
  if (p.cu_seqlens.data != nullptr) {
    const int64_t begin = min(max(load_index(p.cu_seqlens, seq), int64_t{0}), int64_t{p.T});
    const int64_t end = min(max(load_index(p.cu_seqlens, seq + 1), begin), int64_t{p.T});
    item.batch = 0;
    item.row = static_cast<int32_t>(begin);
    item.tokens = static_cast<int32_t>(end - begin);
  }
  if (p.read_slots.data != nullptr &&
      is_padding(p, load_index(p.read_slots, seq), p.initial_span)) {
    item.padded = 1;
  }
  return item;
}

/// Cuts an item down to chunks first .. first + count - 1, of which the first `skip` only bring the
/// state up.
__device__ __forceinline__ void cut_item(WorkItem& item, int first, int count, int skip) {
  item.row += first * 64;
  item.tokens = min(item.tokens - first * 64, count * 64);
  item.first = first;
  item.skip = skip;
}

/// Lists what the transition pass has to compute for a head that remembers at a boundary: N, and M
/// if the state at the boundary before matters. `count`: of all that is listed.
__device__ __forceinline__ void list_transitions(const PrefillParams& p, int boundary, int head,
                                                 bool multiplies, uint32_t* count) {
  const int columns = p.segments.cut.transition_columns;
  const int added = p.V / columns, factors = multiplies ? SegmentView{p}.factor_items() : 0;
  Transition* const out =
      p.segments.transitions + atomicAdd(count, static_cast<uint32_t>(added + factors));
#pragma unroll 1
  for (int i = 0; i < added + factors; ++i) {
    const int is_factor = i >= added ? 1 : 0;
    out[i] = {boundary, head, (i - is_factor * added) * columns, is_factor};
  }
}

/// An item of no rows that starts from zero and stores nothing.
__device__ __forceinline__ WorkItem empty_item(WorkItem item) {
  item.tokens = item.padded = 0;
  item.source = StateSource::kZero;
  item.sink = StateSink::kNone;
  return item;
}

/// Segment `segment` of a head in the main pass.
__device__ __forceinline__ WorkItem segment_item(const SegmentView& table, const Segment& segment,
                                                 int head) {
  const PrefillParams& p = table.p;
  WorkItem item = locate(p, segment.seq, head);
  if (segment.chunks < 0) return empty_item(item);
  int early = 0;
  if (segment.before >= 0) {
    const int horizon = table.horizon(segment.before, head);
    item.source = horizon < 0 ? StateSource::kBoundary : StateSource::kZero;
    early = item.padded ? 0 : max(horizon, 0);
  } else if (segment.after >= 0 && p.segments.keep_initial) {
    item.source = StateSource::kKept;
  }
  if (segment.after >= 0) {
    const bool leads = table.leads() && segment.before < 0;
    item.sink = leads ? StateSink::kAdded : StateSink::kNone;
  }
  item.before = segment.before;
  item.after = segment.after;
  cut_item(item, segment.first - early, segment.chunks + early, early);
  return item;
}

/// The item of a ticket in the transition pass. PERF those of padded sequences, and of boundaries
/// past the end of a short sequence, store zeros that nobody reads: no list leaves them out.
__device__ __forceinline__ WorkItem transition_item(const SegmentView& table, uint32_t ticket) {
  const PrefillParams& p = table.p;
  const Transition work = table.transition(static_cast<int>(ticket));
  const Segment segment = table.left(work.boundary);
  WorkItem item = locate(p, segment.seq, work.head);
  item.column = work.column;
  item.after = work.boundary;
  if (item.padded || segment.after < 0) {
    item = empty_item(item);
    item.sink = work.is_factor ? StateSink::kFactor : StateSink::kAdded;
    return item;
  }
  int early = 0;
  if (work.is_factor) {
    item.source = StateSource::kIdentity;
  } else if (segment.before >= 0) {
    early = max(table.horizon(segment.before, work.head), 0);
    item.source = StateSource::kZero;
  }
  item.sink = work.is_factor ? StateSink::kFactor : StateSink::kAdded;
  item.before = segment.before;
  cut_item(item, segment.first - early, segment.chunks + early, early);
  return item;
}

/// Whether kernels of a Config find first segments that lead.
template <class C>
inline constexpr bool kMayLead = false;
template <class C>
  requires C::kHasLeading
inline constexpr bool kMayLead<C> = true;

/// The item of a ticket; tickets of one segment are adjacent so that its heads share k and q in L2,
/// and those of one head share everything but v.
template <class C>
__device__ __forceinline__ WorkItem item_of(const PrefillParams& p, uint32_t ticket) {
  WorkItem none{};
  none.seq = -1;
  const SegmentView table{p, kMayLead<C>};
  if constexpr (!C::kOutput) {
    return ticket < table.transitions() ? transition_item(table, ticket) : none;
  }
  const auto slices = static_cast<uint32_t>(p.V / C::kV),
             per_segment = static_cast<uint32_t>(p.HV) * slices;
  const bool planned = p.segments.header != nullptr;
  const uint32_t segments = planned ? table.segments() : static_cast<uint32_t>(p.N);
  if (ticket >= min(segments * per_segment, p.end_ticket)) return none;
  const auto position = static_cast<int>(ticket / per_segment);
  const uint32_t rest = ticket % per_segment;
  const auto head = static_cast<int>(rest / slices);
  WorkItem item =
      planned ? segment_item(table, table.segment(position), head) : locate(p, position, head);
  item.column = static_cast<int32_t>(rest % slices) * C::kV;
  return item;
}

/// CTAs at the start of a transition pass that compute first segments instead.
template <class C>
__device__ __forceinline__ uint32_t leading_ctas(const PrefillParams& p) {
  if constexpr (!C::kOutput && kMayLead<C>) {
    return static_cast<uint32_t>(leading_items(p.segments.cut, p.N * p.HV, p.V));
  }
  return 0;
}

/// Tickets of one CTA: the first is its index among those of the pass, later ones are taken from the
/// shared counter if anything before this pass could clear it.
template <class C>
__device__ __forceinline__ uint32_t first_ticket(const PrefillParams& p) {
  return p.first_ticket + blockIdx.x - leading_ctas<C>(p);
}
template <class C>
__device__ __forceinline__ uint32_t next_ticket(const PrefillParams& p, uint32_t ticket) {
  SegmentHeader* const header = p.segments.header;
  if (header == nullptr || !SegmentView{p}.has_lists()) {
    return ticket + gridDim.x - leading_ctas<C>(p);
  }
  return gridDim.x + atomicAdd(C::kOutput ? &header->ticket : &header->transition_ticket, 1u);
}

/// Whether items of this width take the main pass: the planner may have chosen between two.
template <class C>
__device__ __forceinline__ bool takes_pass(const PrefillParams& p) {
  return !p.segments.cut.may_narrow || (p.segments.header->narrow != 0) == (C::kV == 64);
}

/// Reads the ring of work items, warp by warp.
template <int kSlots>
struct WorkReader {
  tile::RingBarriers<kSlots>& ring;
  const WorkItem (&slots)[kSlots];
  tile::RingCursor<kSlots> cursor;

  __device__ __forceinline__ WorkReader(tile::RingBarriers<kSlots>& ring_,
                                        const WorkItem (&slots_)[kSlots])
      : ring(ring_), slots(slots_) {}

  __device__ __forceinline__ WorkItem next() {
    // SYNC work_ring.full: every warp but the loader's waits for the next work item
    cursor.wait(ring);
    const WorkItem item = slots[cursor.slot];
    // SYNC work_ring.empty: the slot has been copied
    cursor.release(ring);
    cursor.next();
    return item;
  }
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_WORK_ITEMS_CUH_
