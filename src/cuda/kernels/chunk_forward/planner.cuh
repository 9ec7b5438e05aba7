// Plans segments on the device: cuts sequences and orders the segments longest first.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLANNER_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLANNER_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/tile/lanes.cuh"

namespace sluice::cuda::chunk_forward {

using device::chunks_of, device::Cut, device::kBuckets, device::kGuessedHorizon;
using device::CutProblem, device::CutRequest, device::CutRule;
using device::kGuessedShare, device::kMostSegments, device::kShortestSegment;
using device::length_bucket, device::list_transitions, device::locate, device::SegmentView;
using device::PrefillParams, device::Segment, device::segment_start, device::segments_of;

inline constexpr int kPlannerThreads = 1024;
inline constexpr int kPlannerWarps = kPlannerThreads / 32;

/// Sequences that the model weighs. With more of them there is enough to do without cutting.
inline constexpr uint32_t kListed = 1024;

/// Shared memory of the planner.
struct PlannerMemory {
  uint32_t chunks, longest;  ///< of all sequences; of the longest one
  uint32_t length;           ///< of a segment
  uint32_t boundaries, chains, transitions;
  uint32_t narrow;                 ///< 1: uncut, items of 64 columns are faster
  uint32_t whole;                  ///< 1: cut nothing
  uint32_t listed, list[kListed];  ///< chunks of the sequences that some cut might touch
  float times[kMostSegments];
  uint32_t counts[kBuckets];
};

/// Calls f(n, chunks of sequence n) for the thread's sequences; `mine` are those of the first one.
template <class F>
__device__ __forceinline__ void for_sequences(const PrefillParams& p, uint32_t mine, const F& f) {
#pragma unroll 1
  for (auto n = static_cast<int>(threadIdx.x); n < p.N; n += kPlannerThreads) {
    f(n, n < kPlannerThreads ? mine : chunks_of(p, n));
  }
}

/// Sums, and the longest sequence.
__device__ __forceinline__ void survey(const PrefillParams& p, PlannerMemory& s, uint32_t mine) {
  uint32_t sum = 0, longest = 0;
  for_sequences(p, mine, [&](int, uint32_t chunks) {
    sum += chunks;
    longest = max(longest, chunks);
  });
  if (sum != 0) {
    atomicAdd(&s.chunks, sum);
    atomicMax(&s.longest, longest);
  }
  __syncthreads();
}

/// Lists the sequences that the shortest segments considered might cut.
__device__ __forceinline__ void list_long(const PrefillParams& p, PlannerMemory& s, uint32_t mine) {
  for_sequences(p, mine, [&](int, uint32_t chunks) {
    if (uint64_t{chunks} * 2 * kMostSegments <= s.longest) return;
    const uint32_t at = atomicAdd(&s.listed, 1u);
    if (at < kListed) s.list[at] = chunks;
  });
  __syncthreads();
}

/// The case that the model judges, with main items of so many columns.
__device__ __forceinline__ CutProblem case_of(const PrefillParams& p, const PlannerMemory& s,
                                              int columns) {
  const auto number = [](auto x) { return static_cast<float>(x); };
  const CutRequest& request = p.segments.cut;
  CutProblem of{number(s.chunks),
                number(p.HV),
                number(p.HV) * (request.may_forget ? kGuessedShare : 1.0f),
                kGuessedHorizon,
                number(p.V / columns),
                number(p.V / request.transition_columns),
                number(SegmentView{p}.factor_items()),
                number(request.multiprocessors)};
  of.cost(p.linear, columns);
  return of;
}

/// The time of a cut of the longest sequence into n segments; one warp.
__device__ __forceinline__ float time_of(const PrefillParams& p, PlannerMemory& s, uint32_t n) {
  const uint32_t length = (s.longest + n - 1) / n;
  Cut cut{length, 0, 0, 0};
#pragma unroll 1
  for (auto i = static_cast<uint32_t>(tile::lane()); i < s.listed; i += 32) cut.add(s.list[i]);
#pragma unroll 1
  for (int step = 1; step < 32; step *= 2) {
    cut.segments += __shfl_xor_sync(~0u, cut.segments, step);
    cut.boundaries += __shfl_xor_sync(~0u, cut.boundaries, step);
    cut.chains += __shfl_xor_sync(~0u, cut.chains, step);
  }
  const bool fits =
      n == 1 || (length >= static_cast<uint32_t>(kShortestSegment) &&
                 cut.boundaries <= static_cast<uint32_t>(p.segments.cut.most_boundaries));
  if (!fits) return __uint_as_float(0x7f7fffffu);
  const float time = cut_time(cut, case_of(p, s, p.segments.cut.columns));
  if (n > 1 || !p.segments.cut.may_narrow) return time;
  const float narrow = cut_time(cut, case_of(p, s, 64));
  s.narrow = narrow < time;
  return min(time, narrow);
}

/// Index of the least of s.times, the first of equals; one warp.
__device__ __forceinline__ uint32_t fastest_cut(const PlannerMemory& s) {
  auto best = static_cast<uint32_t>(tile::lane());
#pragma unroll
  for (uint32_t i = best + 32; i < kMostSegments; i += 32) {
    if (s.times[i] < s.times[best]) best = i;
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_xor_sync(~0u, best, step);
    const float mine = s.times[best], theirs = s.times[other];
    if (theirs < mine || (theirs == mine && other < best)) best = other;
  }
  return best;
}

/// The length of a segment by the model: the best of kMostSegments cuts.
__device__ __forceinline__ void choose_length(const PrefillParams& p, PlannerMemory& s,
                                              uint32_t mine) {
  // WHY first: where the work of all fills the GPU for longer than the longest sequence takes,
  // cutting cannot help, and N may be large.
  const float work = static_cast<float>(s.chunks) * static_cast<float>(p.HV) *
                     static_cast<float>(p.V / p.segments.cut.columns);
  const bool whole = s.longest < 2 * static_cast<uint32_t>(kShortestSegment) ||
                     work >= static_cast<float>(s.longest) *
                                 static_cast<float>(p.segments.cut.multiprocessors) * 2.0f;
  if (threadIdx.x == 0) s.length = max(s.longest, 1u);
  __syncthreads();
  if (whole) return;
  list_long(p, s, mine);
  if (s.listed > kListed) return;
#pragma unroll 1
  for (uint32_t n = 1 + (threadIdx.x >> 5); n <= kMostSegments; n += kPlannerWarps) {
    const float time = time_of(p, s, n);
    if (tile::is_first_lane()) s.times[n - 1] = time;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const uint32_t cuts = fastest_cut(s);
    if (threadIdx.x == 0) s.length = (s.longest + cuts) / (cuts + 1);
  }
  __syncthreads();
}

/// Segments of a sequence.
__device__ __forceinline__ uint32_t cut_of(const PrefillParams& p, const PlannerMemory& s,
                                           uint32_t chunks) {
  return s.whole ? 1 : segments_of(p.segments.cut, chunks, s.length);
}

/// Cuts nothing where the boundaries would not fit: offsets that overlap can make too many.
__device__ __forceinline__ void check_room(const PrefillParams& p, PlannerMemory& s,
                                           uint32_t mine) {
  uint32_t boundaries = 0;
  for_sequences(p, mine, [&](int, uint32_t chunks) { boundaries += cut_of(p, s, chunks) - 1; });
  if (boundaries != 0) atomicAdd(&s.boundaries, boundaries);
  __syncthreads();
  if (threadIdx.x == 0) {
    s.whole = s.boundaries > static_cast<uint32_t>(p.segments.cut.most_boundaries);
    s.boundaries = 0;
  }
  __syncthreads();
}

/// Counts of buckets to places, the last bucket first; one warp. In the last lane: the sum of all.
__device__ __forceinline__ uint32_t place_buckets(PlannerMemory& s) {
  constexpr int kEach = kBuckets / 32;
  static_assert(kEach * 32 == kBuckets);
  const int lane = static_cast<int>(threadIdx.x), last = kBuckets - 1 - kEach * lane;
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += s.counts[last - i];
  uint32_t first = tile::sum_to_lane(sum) - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t count = s.counts[last - i];
    s.counts[last - i] = first;
    first += count;
  }
  return first;
}

/// Buckets of all segments, as places in the order: counts[b] is where bucket b begins.
__device__ __forceinline__ void count_segments(const PrefillParams& p, PlannerMemory& s,
                                               uint32_t mine) {
  for_sequences(p, mine, [&](int, uint32_t chunks) {
    const uint32_t count = cut_of(p, s, chunks);
    // WHY one bucket: segments of a sequence differ by one chunk.
    atomicAdd(&s.counts[length_bucket((chunks + count - 1) / count)], count);
  });
  __syncthreads();
  if (threadIdx.x < 32) {
    const uint32_t segments = place_buckets(s);
    if (threadIdx.x == 31) p.segments.header->segments = segments;
  }
  __syncthreads();
}

/// Writes the segments of sequence n. Its boundaries have consecutive numbers.
__device__ __forceinline__ void write_segments(const PrefillParams& p, PlannerMemory& s, int n,
                                               uint32_t chunks) {
  const uint32_t count = cut_of(p, s, chunks);
  Segment* out = p.segments.segments +
                 atomicAdd(&s.counts[length_bucket((chunks + count - 1) / count)], count);
  const auto boundary = count > 1 ? static_cast<int32_t>(atomicAdd(&s.boundaries, count - 1)) : 0;
  if (count > 1) {
    p.segments.chains[atomicAdd(&s.chains, 1u)] = {boundary, static_cast<int32_t>(count - 1)};
  }
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t first = segment_start(chunks, i, count);
    const auto at = static_cast<int32_t>(i);
    const Segment segment{n, first, segment_start(chunks, i + 1, count) - first,
                          i > 0 ? boundary + at - 1 : -1, i + 1 < count ? boundary + at : -1};
    out[i] = segment;
    if (segment.after >= 0) p.segments.left[segment.after] = segment;
  }
}

/// Horizons and transitions where no head may forget.
__device__ __forceinline__ void remember_all(const PrefillParams& p, PlannerMemory& s) {
  const uint32_t pairs = s.boundaries * static_cast<uint32_t>(p.HV);
#pragma unroll 1
  for (uint32_t pair = threadIdx.x; pair < pairs; pair += kPlannerThreads) {
    const auto boundary = static_cast<int>(pair / static_cast<uint32_t>(p.HV)),
               head = static_cast<int>(pair) - boundary * p.HV;
    const Segment left = p.segments.left[boundary];
    const bool padded = locate(p, left.seq, head).padded != 0;
    p.segments.horizon[pair] = padded ? 0 : -1;
    if (!padded) list_transitions(p, boundary, head, left.before >= 0, &s.transitions);
  }
  __syncthreads();
}

/// Writes the segment table of a call. One CTA with sizeof(PlannerMemory) bytes of dynamic shared memory.
__global__ void __launch_bounds__(kPlannerThreads)
    planner_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<PlannerMemory*>(dynamic_shared);
  ptx::launch_dependents();
  for (int b = static_cast<int>(threadIdx.x); b < kBuckets; b += kPlannerThreads) s.counts[b] = 0;
  if (threadIdx.x == 0) {
    s.chunks = s.longest = s.boundaries = s.chains = s.transitions = s.narrow = s.whole = s.listed =
        0;
    s.length =
        p.segments.cut.rule == CutRule::kLength ? static_cast<uint32_t>(p.segments.cut.length) : 1;
    *p.segments.header = {};
  }
  const auto thread = static_cast<int>(threadIdx.x);
  const uint32_t mine = thread < p.N ? chunks_of(p, thread) : 0;
  __syncthreads();
  if (p.segments.cut.rule == CutRule::kModel) {
    survey(p, s, mine);
    choose_length(p, s, mine);
  }
  if (p.segments.cut.rule != CutRule::kWhole) check_room(p, s, mine);
  count_segments(p, s, mine);
  for_sequences(p, mine, [&](int n, uint32_t chunks) { write_segments(p, s, n, chunks); });
  __syncthreads();
  if (!p.segments.cut.may_forget) remember_all(p, s);
  if (threadIdx.x == 0) {
    p.segments.header->boundaries = s.boundaries;
    p.segments.header->narrow = s.boundaries == 0 ? s.narrow : 0;
    p.segments.header->chains = s.chains;
    if (!p.segments.cut.may_forget) p.segments.header->transitions = s.transitions;
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PLANNER_CUH_
