// SPDX-License-Identifier: Apache-2.0
#include "cuda/split.h"

#include <algorithm>
#include <array>

#include "cuda/split_linear.h"
#include "cuda/split_sizes.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::Cut, device::SplitCase, device::SplitRequest, device::SplitRule;

/// Most states at boundaries that the planner may ask for, per multiprocessor: 50 MB on an H200.
constexpr int64_t kPairsPerMultiprocessor = 3;

bool may_forget(const DeltaRuleProblem& p, const CutOverride& wish) noexcept {
  if (is_linear(p)) return false;
  if (p.history == SLUICE_HISTORY_FORGET) return true;
  if (p.history == SLUICE_HISTORY_STRICT || wish.strict) return false;
  const bool bounded = !core::present(p.beta) || p.beta_space == SLUICE_BETA_LOGIT;
  return p.qk_norm == SLUICE_QK_NORM_L2 && bounded;
}

/// Segments of equal length, without a planner; false where numbers would not fit.
bool cut_evenly(const DeltaRuleProblem& p, int64_t count, int32_t shortest,
                SplitRequest* request) noexcept {
  const int64_t value = std::min(count, even_chunks(p)), boundaries = p.rows.N * (value - 1);
  // BOUND: items of the transition pass are an int32.
  if (boundaries * p.HV * (p.K + p.V) / 64 >= int64_t{1} << 31) return false;
  request->rule = value > 1 ? SplitRule::kEven : SplitRule::kWhole;
  request->value = static_cast<int32_t>(value);
  request->shortest = shortest;
  request->most_boundaries = static_cast<int32_t>(boundaries);
  return true;
}

/// What the model says of lengths that the host expects.
struct Outlook {
  float time;     ///< of the best cut, or of none
  float whole;    ///< of none
  int32_t count;  ///< segments a sequence of the best cut
};

/// `chunks` of all sequences; `sequences` of them have `longest` each, and the others are short.
struct Lengths {
  int64_t chunks, sequences, longest;
};

Outlook look_ahead(const DeltaRuleProblem& p, const SplitRequest& request,
                   const Lengths& lengths) noexcept {
  const auto number = [](auto x) { return static_cast<float>(x); };
  const auto heads = number(p.HV);
  SplitCase of{number(lengths.chunks),
               heads,
               heads * (request.may_forget ? device::kGuessedShare : 1.0f),
               device::kGuessedHorizon,
               number(p.V / request.columns),
               number(p.V / request.transition_columns),
               request.scalar_factors ? 0.0f : number(p.K / request.transition_columns),
               number(request.multiprocessors)};
  of.cost(is_linear(p), request.columns);
  Outlook best{};
  for (int64_t n = 1; n <= device::kMostSegments; ++n) {
    const int64_t length = (lengths.longest + n - 1) / n, boundaries = lengths.sequences * (n - 1);
    if (n > 1 && (length < device::kShortestSegment || boundaries > request.most_boundaries)) {
      break;
    }
    const Cut cut{static_cast<uint32_t>(length), static_cast<uint32_t>(lengths.sequences * n),
                  static_cast<uint32_t>(boundaries),
                  static_cast<uint32_t>(n > 1 ? lengths.sequences : 0)};
    const float time = device::cut_time(cut, of);
    if (n == 1) best = {time, time, 1};
    if (time < best.time) best.time = time, best.count = static_cast<int32_t>(n);
  }
  return best;
}

/// What the host expects of lengths that it does not know: sequences of equal length, or one that
/// has somewhat more than half of all tokens; where it knows the longest, as many of these as there
/// may be.
struct Expectation {
  Outlook equal, skewed;
};

Expectation expect(const DeltaRuleProblem& p, const SplitRequest& request) noexcept {
  const int64_t N = p.rows.N;
  if (is_even(p)) {
    const int64_t chunks = even_chunks(p);
    const Outlook known = look_ahead(p, request, {N * chunks, N, chunks});
    return {known, known};
  }
  const int64_t chunks = most_chunks(p), each = std::max<int64_t>(chunks / N, 1);
  if (is_bounded(p)) {
    const int64_t most = (p.rows.longest + 63) / 64, sequences = p.rows.T / p.rows.longest;
    const Outlook known =
        look_ahead(p, request, {chunks, std::clamp<int64_t>(sequences, 1, N), most});
    return {known, known};
  }
  return {look_ahead(p, request, {chunks, N, each}),
          look_ahead(p, request, {chunks, 1, (chunks + each) / 2})};
}

/// Time of a chain of launches that finds nothing to cut, in chunks as the model's.
constexpr float kAskTime = 6.0f;

/// Whether the planner is asked, rather than all sequences left whole in `wide` or `narrow` items.
/// WHY not for any gain of unknown lengths: to ask costs as much as it would gain in short calls.
bool is_worth_asking(const DeltaRuleProblem& p, const Expectation& wide,
                     const Expectation& narrow) noexcept {
  const float equal = std::min(wide.equal.whole, narrow.equal.whole),
              skewed = std::min(wide.skewed.whole, narrow.skewed.whole);
  const float gain = 1.0f - std::min(wide.equal.time / equal, wide.skewed.time / skewed);
  return gain > (is_even(p) ? 0.0f : 2.0f * kAskTime / (equal + kAskTime));
}

/// One number of both lengths: equal ones count twice.
float weigh(float equal, float skewed) noexcept { return equal * equal * skewed; }

/// What is expected of segments; decides whether heads may forget. WHY not always where they are
/// allowed to: early starts lengthen the main pass, and where the transition pass fits the GPU in
/// one round anyway, what they save there is not on the way of anything.
Expectation expect_segments(const DeltaRuleProblem& p, SplitRequest* request) noexcept {
  const Expectation forgetful = expect(p, *request);
  if (!request->may_forget) return forgetful;
  SplitRequest all = *request;
  all.may_forget = false;
  const Expectation exact = expect(p, all);
  if (weigh(exact.equal.time, exact.skewed.time) >=
      weigh(forgetful.equal.time, forgetful.skewed.time)) {
    return forgetful;
  }
  request->may_forget = false;
  return exact;
}

/// 128 or 64 columns of V a work item; and the rule kWhole where expected lengths gain too little
/// by a cut. WHY 64 columns are not cut: slower than one of the two wherever it was measured.
void choose_way(const DeltaRuleProblem& p, const Room& room, SplitRequest* request) noexcept {
  SplitRequest whole = *request;
  whole.rule = SplitRule::kWhole;
  whole.most_boundaries = 0;
  if (p.rows.N == 0 || p.rows.T == 0) {
    *request = whole;
    return;
  }
  const Expectation wide = expect_segments(p, request);
  whole.columns = 64;
  const Expectation narrow = p.V % 128 == 0 ? expect(p, whole) : wide;
  const OneLaunch one = look_at_one_launch(p, room);
  if (one.value > 0 && one.time < std::min(wide.equal.time, narrow.equal.whole)) {
    *request = in_one_launch(*request, one.rule, one.value);
    return;
  }
  if (is_worth_asking(p, wide, narrow)) {
    if (is_even(p)) cut_evenly(p, wide.equal.count, device::kShortestSegment, request);
    request->or_narrow = !is_even(p) && !is_bounded(p) && narrow.equal.whole < wide.equal.whole;
    return;
  }
  const auto cost = [](const Expectation& of) { return weigh(of.equal.whole, of.skewed.whole); };
  whole.columns = cost(narrow) < cost(wide) ? 64 : request->columns;
  *request = whole;
}

/// choose_way(), remembered. PERF a model asks for the same sizes layer after layer, and the model
/// of time takes microseconds.
void recall_way(const DeltaRuleProblem& p, const Room& room, SplitRequest* request) noexcept {
  using Key = std::array<int64_t, 15>;
  static thread_local Key known{};
  static thread_local SplitRequest answer;
  const Key key{p.rows.N,
                p.rows.T,
                p.rows.longest,
                core::present(p.rows.cu_seqlens),
                p.HV,
                p.K,
                p.V,
                request->may_forget,
                request->multiprocessors,
                is_linear(p),
                takes_prefix(p),
                room.clusters[0],
                room.clusters[1],
                room.clusters[2],
                room.clusters[3]};
  if (key != known) {
    answer = *request;
    choose_way(p, room, &answer);
    known = key;
  }
  *request = answer;
}

/// Chunks of a segment that depend on nothing but HV: four rounds of a short prompt's work.
int32_t own_length(int64_t HV) noexcept {
  return static_cast<int32_t>(std::clamp<int64_t>(4 * HV, 16, 256));
}

/// Fills in rule, value and most_boundaries.
void apply(sluice_split split, int32_t value, const DeltaRuleProblem& p,
           SplitRequest* request) noexcept {
  const int64_t chunks = most_chunks(p);
  int64_t most = 0;
  if (split == SLUICE_SPLIT_SEGMENTS) {
    request->rule = SplitRule::kCount;
    request->value = value;
    if (is_even(p) && cut_evenly(p, value, 1, request)) return;
    most = std::min(p.rows.N * (value - 1), chunks);
  } else if (split == SLUICE_SPLIT_LENGTH) {
    request->rule = SplitRule::kLength;
    request->value = value > 0 ? value / 64 : own_length(p.HV);
    most = chunks / request->value;
  } else if (split == SLUICE_SPLIT_AUTO) {
    request->rule = SplitRule::kModel;
    most = std::min(kPairsPerMultiprocessor * request->multiprocessors / p.HV,
                    chunks / device::kShortestSegment);
  }
  // BOUND: boundaries * HV * V / 8 is a uint32. The planner cuts nothing where there is no room.
  request->most_boundaries = static_cast<int32_t>(std::min(most, (int64_t{1} << 26) / p.HV));
}

}  // namespace

SplitRequest choose_split(const DeltaRuleProblem& p, const Room& room,
                          const CutOverride& wish) noexcept {
  const bool own = p.split != SLUICE_SPLIT_AUTO;
  const sluice_split split = own ? p.split : wish.split;
  SplitRequest request;
  request.multiprocessors = room.multiprocessors;
  const bool wide = p.V % 128 == 0;
  request.columns = !wide || split == SLUICE_SPLIT_COLUMNS ? 64 : 128;
  request.transition_columns = (p.K == 128 || is_linear(p)) && wide ? 128 : 64;
  request.scalar_factors = is_linear(p);
  request.may_forget = may_forget(p, wish);
  request.in_order = is_even(p);
  apply(split, own ? p.split_value : wish.value, p, &request);
  if (split == SLUICE_SPLIT_AUTO) {
    if (wish.cluster > 0 && takes_clusters(p)) {
      return in_one_launch(request, SplitRule::kCluster, wish.cluster);
    }
    if (wish.prefix > 0 && takes_prefix(p)) {
      return in_one_launch(request, SplitRule::kPrefix, wish.prefix);
    }
    recall_way(p, room, &request);
    if (is_one_launch(request.rule)) return request;
  }
  if (request.rule == SplitRule::kWhole || request.most_boundaries == 0) {
    request.rule = SplitRule::kWhole;
    request.most_boundaries = 0;
  }
  return request;
}

int linear_way(const SplitRequest& request, int64_t V) noexcept {
  if (request.rule == SplitRule::kCluster) return 4;
  if (request.rule == SplitRule::kPrefix) return 5;
  const bool narrow = V > 64 && request.columns == 64, cut = request.rule != SplitRule::kWhole;
  return (narrow ? 1 : 0) + (cut ? 2 : 0);
}

size_t split_workspace(const DeltaRuleProblem& p, const SplitRequest& request) noexcept {
  if (is_one_launch(request.rule)) return 0;
  if (request.rule == SplitRule::kWhole && request.in_order) return 0;
  return device::split_layout(p.rows.N, p.HV, p.K, p.V, request.most_boundaries).end;
}

}  // namespace sluice::cuda
