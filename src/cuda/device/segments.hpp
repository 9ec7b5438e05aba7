// Cuts long sequences into segments: the tables of a cut, their place in the workspace, and the
// model of time that chooses how long a segment is. Host and device code.
//
// A segment of chunks maps the state that enters it to the one that leaves it, and that map is
// affine: S' = N + M S. So segments can run at once. The transition pass computes N (from a zero
// state) and M (from the identity, with v = 0) of each, the join carries the state over the
// boundaries in order, and the main pass runs every segment from its own start. Nothing is dropped.
// Where a head has forgotten everything older (horizon.cuh), its segment starts some chunks early
// from zero instead, and needs neither N nor M.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_SEGMENTS_HPP_
#define SLUICE_CUDA_DEVICE_SEGMENTS_HPP_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::device {

/// A run of chunks of one sequence.
struct Segment {
  int32_t seq;
  int32_t first, chunks;  ///< chunks first .. first + chunks - 1; -1 chunks: there is none
  int32_t before, after;  ///< boundaries that it starts and ends at, -1 at the sequence's ends
};

/// One work item of the transition pass: columns of N or M of the segment that ends at a boundary.
struct Transition {
  int32_t boundary, head, column;
  int32_t is_factor;  ///< 1: M, else N
};

/// Start of the workspace. The counts stay there after the call, for whoever asks how it was cut.
struct SegmentHeader {
  uint32_t segments, boundaries, transitions;
  uint32_t chains;
  uint32_t ticket, transition_ticket, join_ticket;  ///< of the persistent kernels
  uint32_t narrow;  ///< 1: nothing is cut, and items of 64 columns take the main pass
};

/// The boundaries of one sequence: first .. first + count - 1.
struct Chain {
  int32_t first, count;
};

/// Who says how long a segment is, and how segments of a sequence come by the states they start from.
enum class CutRule : int32_t {
  kWhole,   ///< nobody: sequences stay whole
  kModel,   ///< the model of time below, from all lengths of the call
  kEqual,   ///< the host, of lengths that are known to be equal: as many segments of each, no table
  kCount,   ///< the caller: that many segments a sequence
  kLength,  ///< the caller: that many chunks a segment
  kCluster,  ///< linear attention: segments of a sequence are the CTAs of a cluster, one launch
  kPrefix,   ///< linear attention: segments that sum up all before them by themselves, one launch
};

/// How the sequences of a call are spread over the GPU: what the host decides, and what it leaves to
/// the planner.
struct CutRequest {
  CutRule rule = CutRule::kWhole;
  /// What the rule is about, by rule.
  union {
    int32_t count = 0;      ///< kEqual, kCount: segments of a sequence
    int32_t length;         ///< kLength: chunks of a segment
    int32_t cluster_ctas;   ///< kCluster: CTAs of a cluster
    int32_t prefix_blocks;  ///< kPrefix: blocks of 128 tokens of a segment
  };
  int32_t shortest = 1;         ///< kEqual: least chunks of a segment
  int32_t multiprocessors = 0;  ///< that the model divides the work by
  int32_t most_boundaries = 0;  ///< that the workspace has room for
  int32_t long_sequences = 0;   ///< as long as the longest, at most: their joins take turns
  int32_t columns = 0;          ///< of V, of a work item of the main pass
  int32_t transition_columns = 0;
  bool may_forget = false;      ///< history may be dropped where horizon.cuh allows
  bool may_narrow = false;      ///< where kModel cuts nothing, items may have 64 columns
  bool in_order = false;        ///< lengths are equal: whole sequences need not be put in order
  bool halves_tail = false;     ///< items of the last round have half as many columns
  bool scalar_factors = false;  ///< linear attention: M is a number, which needs no work items
  /// kEqual: length of first segments in quarters of the others'; they need no boundary, so they are
  /// computed, with outputs, in the transition pass, and what they leave is N. 0: like all others.
  int8_t lead = 0;

  /// Whether all segments are computed by one launch, without planner, workspace or join.
  constexpr bool is_one_launch() const {
    return rule == CutRule::kCluster || rule == CutRule::kPrefix;
  }
  /// This request with sequences left whole.
  constexpr CutRequest as_whole() const {
    CutRequest out = *this;
    out.rule = CutRule::kWhole;
    out.lead = 0;
    out.most_boundaries = 0;
    return out;
  }
  /// This request as a rule of one launch; `parts`: cluster_ctas or prefix_blocks.
  constexpr CutRequest as_one_launch(CutRule of, int32_t parts) const {
    CutRequest out = *this;
    out.rule = of;
    (of == CutRule::kCluster ? out.cluster_ctas : out.prefix_blocks) = parts;
    out.columns = 128;
    out.most_boundaries = 0;
    return out;
  }
};

/// Floats of a factor's place.
SLUICE_HOST_DEVICE constexpr int64_t factor_size(int64_t K, int64_t V) {
  return K * (K > V ? K : V);
}

/// Bytes before each table of a workspace, from sizes alone.
struct SegmentWorkspace {
  size_t segments, left, chains, horizon, transitions, added, factor, end;
};

constexpr SegmentWorkspace segment_workspace(int64_t N, int64_t HV, int64_t K, int64_t V,
                                             int64_t most_boundaries) {
  const auto aligned = [](int64_t bytes) { return (static_cast<size_t>(bytes) + 255) / 256 * 256; };
  const int64_t pairs = most_boundaries * HV;
  SegmentWorkspace at{};
  at.segments = aligned(sizeof(SegmentHeader));
  at.left = at.segments + aligned((N + most_boundaries) * int64_t{sizeof(Segment)});
  at.chains = at.left + aligned(most_boundaries * int64_t{sizeof(Segment)});
  at.horizon = at.chains + aligned(most_boundaries * int64_t{sizeof(Chain)});
  at.transitions = at.horizon + aligned(pairs * 4);
  at.added = at.transitions + aligned(pairs * (V + K) / 64 * int64_t{sizeof(Transition)});
  at.factor = at.added + aligned(pairs * K * V * 4);
  at.end = at.factor + aligned(pairs * factor_size(K, V) * 4);
  return at;
}

/// The segment table in device memory. BOUND: boundaries * HV < 2^31.
struct SegmentTables {
  SegmentHeader* header;
  Segment* segments;        ///< longest first
  Segment* left;            ///< by boundary: the segment that ends there
  Chain* chains;            ///< in no order
  int32_t* horizon;         ///< [boundaries,HV]: chunks to start early from zero; -1: from the join
  Transition* transitions;  ///< in no order
  float* added;             ///< [boundaries,HV,K,V]: N, then the state at the boundary
  /// [boundaries,HV,K,max(K,V)]: M, column by column; at a sequence's first boundary, which has no
  /// M, the initial state instead ([K,V]), where `keep_initial` asks for it.
  float* factor;
  /// The call writes its final states where it reads the initial ones. WHY: the last segment of a
  /// sequence may end before the first one begins.
  bool keep_initial;
  CutRequest cut;

  /// Points the tables into a workspace of segment_workspace().end bytes.
  void place_in(void* workspace, int64_t N, int64_t HV, int64_t K, int64_t V) noexcept {
    const SegmentWorkspace at = segment_workspace(N, HV, K, V, cut.most_boundaries);
    const auto place = [&](auto*& table, size_t offset) {
      table = reinterpret_cast<std::remove_reference_t<decltype(table)>>(
          static_cast<char*>(workspace) + offset);
    };
    place(header, 0);
    place(segments, at.segments);
    place(left, at.left);
    place(chains, at.chains);
    place(horizon, at.horizon);
    place(transitions, at.transitions);
    place(added, at.added);
    place(factor, at.factor);
  }
};

/// Of key-wise gates: bytes of the record of a chunk and head, and records of a head that N sequences
/// in T tokens have.
constexpr int64_t key_record_bytes(int64_t K) { return 388 * K + 16384; }
constexpr int64_t key_records(int64_t N, int64_t T, bool is_packed) {
  return is_packed ? T / 64 + N : N * ((T + 63) / 64);
}

/// ln 2^-28: what decays by more is forgotten. BOUND: with |k| <= 1, 0 <= beta <= 2 and g <= 0 no
/// chunk lengthens the state, so that what is dropped is below 2^-28 of its largest column.
inline constexpr float kForgotten = -19.408121f;

/// Least chunks of a segment that the model makes.
inline constexpr int32_t kShortestSegment = 4;
/// Most segments that it cuts the longest sequence into.
inline constexpr int kMostSegments = 64;

/// Heads that remember and chunks that the others start early, where history may be dropped: a
/// guess. WHY not looked up: gates of one place are a microsecond from the planner, and the best
/// cut depends little on them.
inline constexpr float kGuessedShare = 0.25f;
inline constexpr float kGuessedHorizon = 6.5f;

/// Times in units of a chunk of the main pass with 128 columns of V.
struct CutCosts {
  float narrow;           ///< the same with 64 columns
  float full;             ///< a chunk of 128 columns where all multiprocessors want memory
  float narrow_full;      ///< and one of 64
  float item;             ///< to begin and to end a work item
  float transition;       ///< a chunk of the transition pass
  float transition_full;  ///< likewise where all multiprocessors want memory
  float join;             ///< a boundary of the join
  float cut;              ///< the launches that a cut adds
  /// The look back, where heads may forget, and what segments that start early take beyond their chunks.
  float horizon;
};

/// Fitted to forced cuts on an H200: 270 of the delta rule, whose unit is 2.12 us, see
/// docs/lab/split.md; linear attention's is 1.58 us, see docs/lab/linear_attention.md.
SLUICE_HOST_DEVICE constexpr CutCosts cut_costs(bool linear) {
  return linear ? CutCosts{0.75f, 1.4f, 0.85f, 5.9f, 0.52f, 0.64f, 0.05f, 10.9f, 0.0f}
                : CutCosts{0.78f, 1.0f, 0.78f, 7.3f, 0.77f, 0.0f, 0.79f, 7.0f, 7.0f};
}

/// Segments of a sequence of `chunks` chunks in segments of at most `length`.
SLUICE_HOST_DEVICE constexpr uint32_t segments_of(uint32_t chunks, uint32_t length) {
  return chunks <= length ? 1 : (chunks + length - 1) / length;
}

/// Segments of a sequence under a request; `length` is the model's choice.
SLUICE_HOST_DEVICE constexpr uint32_t segments_of(const CutRequest& request, uint32_t chunks,
                                                  uint32_t length) {
  if (request.rule == CutRule::kWhole || chunks < 2) return 1;
  if (request.rule == CutRule::kCount) {
    const auto count = static_cast<uint32_t>(request.count);
    return count < chunks ? count : chunks;
  }
  return segments_of(chunks, length);
}

/// First chunk of segment s of n; n <= chunks or chunks = 0.
SLUICE_HOST_DEVICE constexpr int32_t segment_start(uint32_t chunks, uint32_t s, uint32_t n) {
  const uint32_t longer = chunks % n;
  return static_cast<int32_t>(chunks / n * s + (s < longer ? s : longer));
}

/// First chunk of segment s of n under kEqual, with CutRequest::lead. BOUND: n <= chunks / 4 where
/// first segments lead.
SLUICE_HOST_DEVICE constexpr int32_t equal_start(int lead, uint32_t chunks, uint32_t s,
                                                 uint32_t n) {
  if (lead == 0 || n < 2) return segment_start(chunks, s, n);
  const uint32_t others = 4 * (n - 1), all = others + static_cast<uint32_t>(lead),
                 rest = chunks / all * others + chunks % all * others / all;
  return s == 0 ? 0 : static_cast<int32_t>(chunks - rest) + segment_start(rest, s - 1, n - 1);
}

/// Segments of a sequence under kEqual. WHY not always `count`: a graph may be replayed with a
/// sequence that is much shorter than its tensors.
SLUICE_HOST_DEVICE constexpr int32_t equal_count(const CutRequest& request, uint32_t chunks) {
  const auto most = static_cast<int32_t>(chunks) / request.shortest;
  return most < 1 ? 1 : most < request.count ? most : request.count;
}

/// Segment `at` of a sequence under kEqual, whose boundaries have the numbers from
/// seq * (count - 1) on; one of -1 chunks past the last. `lead`: request.lead, or 0 where that is known.
SLUICE_HOST_DEVICE constexpr Segment equal_segment(const CutRequest& request, int lead, int32_t seq,
                                                   uint32_t chunks, int32_t at) {
  const int32_t count = equal_count(request, chunks), boundary = seq * (request.count - 1) + at;
  if (at >= count) return {seq, 0, -1, -1, -1};
  const auto n = static_cast<uint32_t>(count), s = static_cast<uint32_t>(at);
  const int32_t first = equal_start(lead, chunks, s, n);
  return {seq, first, equal_start(lead, chunks, s + 1, n) - first, at > 0 ? boundary - 1 : -1,
          at + 1 < count ? boundary : -1};
}

/// One way to cut a batch.
struct Cut {
  uint32_t length;      ///< most chunks of a segment
  uint32_t segments;    ///< of sequences at least half as long
  uint32_t boundaries;  ///< of all sequences
  uint32_t chains;      ///< sequences that are cut

  SLUICE_HOST_DEVICE void add(uint32_t chunks) {
    const uint32_t n = segments_of(chunks, length);
    if (2 * uint64_t{chunks} > length) segments += n;
    boundaries += n - 1;
    chains += n > 1;
  }
};

/// Work items of first segments that run in the transition pass, one a CTA; `pairs`: sequences x heads.
SLUICE_HOST_DEVICE constexpr int64_t leading_items(const CutRequest& request, int64_t pairs,
                                                   int64_t V) {
  return request.lead > 0 ? pairs * (V / request.columns) : 0;
}

/// What a cut is judged by.
struct CutProblem {
  float chunks;         ///< of all sequences
  float heads, exact;   ///< value heads, and those of them that remember
  float early;          ///< chunks that a segment of the others starts early, on average
  float slices;         ///< work items of a head in the main pass
  float added, factor;  ///< in the transition pass, for N and for M
  float multiprocessors;
  float chunk = 0, full = 0;  ///< a chunk of the main pass: alone, and with all others busy
  CutCosts costs = {};

  /// Fills in what main items of so many columns cost.
  SLUICE_HOST_DEVICE void cost(bool linear, int columns) {
    costs = cut_costs(linear);
    chunk = columns == 64 ? costs.narrow : 1.0f;
    full = columns == 64 ? costs.narrow_full : costs.full;
  }
};

/// Time of a cut: equal segments come in whole rounds.
SLUICE_HOST_DEVICE float cut_time(const Cut& cut, const CutProblem& of) {
  const auto rounds = [&](float items) {
    const auto whole = static_cast<float>(static_cast<int64_t>(items / of.multiprocessors));
    return whole * of.multiprocessors < items ? whole + 1.0f : whole;
  };
  const auto boundaries = static_cast<float>(cut.boundaries),
             chains = static_cast<float>(cut.chains), length = static_cast<float>(cut.length);
  const float forgetful = of.heads - of.exact;
  const float wanted = cut.boundaries > 0 && forgetful > 0 ? of.early : 0.0f;
  const float early = wanted < length ? wanted : length;
  const CutCosts& costs = of.costs;
  const float added = boundaries * (forgetful * early + of.heads * costs.item);
  const float work = (of.chunks * of.heads + added) * of.slices / of.multiprocessors * of.full;
  const float in_rounds = rounds(static_cast<float>(cut.segments) * of.heads * of.slices) *
                          (length + early + costs.item) * of.chunk;
  const float main_pass = work > in_rounds ? work : in_rounds;
  if (cut.boundaries == 0) return main_pass;
  const float items = of.exact * (boundaries * of.added + (boundaries - chains) * of.factor);
  const float in_turn = rounds(items) * (length + costs.item) * costs.transition;
  const float moved = items * length / of.multiprocessors * costs.transition_full;
  const float join = of.exact > 0 ? costs.join * (boundaries / chains - 1.0f) : 0.0f;
  const float launches = costs.cut + (forgetful > 0 ? costs.horizon : 0.0f);
  return main_pass + (in_turn > moved ? in_turn : moved) + join + launches;
}

/// Whether the last of several rounds of items leaves so many multiprocessors idle that twice as many
/// items fit it.
SLUICE_HOST_DEVICE constexpr bool halves_fit(int64_t items, int64_t multiprocessors) {
  const int64_t rest = items % multiprocessors;
  return items > multiprocessors && rest > 0 && 2 * rest <= multiprocessors;
}

/// Time of whole sequences of equal length whose last round has items of half as many columns.
SLUICE_HOST_DEVICE constexpr float halved_time(int64_t chunks, int64_t items,
                                               int64_t multiprocessors, const CutCosts& costs) {
  const float each = static_cast<float>(chunks) + costs.item;
  return each * (static_cast<float>(items / multiprocessors) + costs.narrow) + costs.cut;
}

/// Exact below 16 chunks, eight buckets an octave above: 16 + 8 * (25 - 4) + 7 < 192.
inline constexpr int kBuckets = 192;

/// Bucket of a sequence of `chunks` chunks; longer sequences have larger buckets.
SLUICE_HOST_DEVICE constexpr int length_bucket(uint32_t chunks) {
  if (chunks < 16) return static_cast<int>(chunks);
  int octave = 4;
  while (octave < 25 && (chunks >> (octave + 1)) != 0) ++octave;
  return 16 + 8 * (octave - 4) + static_cast<int>((chunks >> (octave - 3)) & 7u);
}

/// Chunks of rows begin .. end - 1 within 0 .. T - 1, whatever begin and end are.
SLUICE_HOST_DEVICE constexpr uint32_t chunks_between(int64_t begin, int64_t end, int64_t T) {
  const int64_t from_zero = begin > 0 ? begin : 0;
  const int64_t first = from_zero < T ? from_zero : T;
  const int64_t from_first = end > first ? end : first;
  const int64_t last = from_first < T ? from_first : T;
  return static_cast<uint32_t>((last - first + 63) / 64);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_SEGMENTS_HPP_
