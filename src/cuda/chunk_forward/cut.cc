// Asks caller, environment and a model of time how the sequences of a prefill are cut.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/cut.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/chunk_forward/lengths.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::Cut, device::CutCosts, device::CutRequest, device::CutRule, device::CutProblem;

/// Most states at boundaries that the planner may ask for, per multiprocessor: 50 MB on an H200.
constexpr int64_t kPairsPerMultiprocessor = 3;

bool may_forget(const DeltaRuleProblem& p, const CutOverride& environment) noexcept {
  if (is_linear(p)) return false;
  if (p.history == SLUICE_HISTORY_FORGET) return true;
  if (p.history == SLUICE_HISTORY_STRICT || environment.strict) return false;
  const bool bounded = !core::present(p.beta) || p.beta_space == SLUICE_BETA_LOGIT;
  return p.qk_norm == SLUICE_QK_NORM_L2 && bounded;
}

/// Segments of equal length, without a planner; false where numbers would not fit. `lead`: the first
/// ones in quarters of the others, 0 where they do not lead.
bool cut_equally(const DeltaRuleProblem& p, int64_t wanted, int8_t lead, int32_t shortest,
                 CutRequest* cut) noexcept {
  const int64_t count = std::min(wanted, equal_chunks(p)), boundaries = p.rows.N * (count - 1);
  // BOUND: items of the transition pass are an int32.
  if (boundaries * p.HV * (p.K + p.V) / 64 >= int64_t{1} << 31) return false;
  cut->rule = count > 1 ? CutRule::kEqual : CutRule::kWhole;
  cut->count = static_cast<int32_t>(count);
  cut->lead = lead;
  cut->shortest = shortest;
  cut->most_boundaries = static_cast<int32_t>(boundaries);
  return true;
}

/// A batch as the model of time sees it: `chunks` of all sequences; `sequences` of them have
/// `longest` each, and the others are short.
struct BatchShape {
  int64_t chunks, sequences, longest;
};

/// What the model says of a batch.
struct CutEstimate {
  float time;       ///< of the best cut, or of none
  float whole;      ///< of none
  int32_t count;    ///< segments a sequence of the best cut
  int8_t lead = 0;  ///< quarters of the others that its first segments have, where they lead
};

/// A chunk of 64 columns where q and k are taken as given. WHY less than with the l2 norm: that
/// lengthens what prepares a chunk, which 128 columns hide.
constexpr float kNarrowAsGiven = 0.755f;

bool takes_keys_as_given(const DeltaRuleProblem& p) noexcept {
  return !is_linear(p) && !core::present(p.key_gate) && p.qk_norm == SLUICE_QK_NORM_NONE;
}

/// What does not depend on the number of segments.
CutProblem case_of(const DeltaRuleProblem& p, const CutRequest& cut,
                   const BatchShape& batch) noexcept {
  const auto number = [](auto x) { return static_cast<float>(x); };
  const auto heads = number(p.HV);
  CutProblem of{number(batch.chunks),
                heads,
                heads * (cut.may_forget ? device::kGuessedShare : 1.0f),
                device::kGuessedHorizon,
                number(p.V / cut.columns),
                number(p.V / cut.transition_columns),
                has_scalar_factors(p) ? 0.0f : number(p.K / cut.transition_columns),
                number(cut.multiprocessors)};
  of.cost(has_scalar_factors(p), cut.columns);
  if (cut.columns == 64 && takes_keys_as_given(p)) of.chunk = of.full = kNarrowAsGiven;
  if (!is_linear(p)) {
    const int columns = join_columns(cut, batch.sequences * p.HV, p.V);
    of.costs.join *= columns == 8 ? 1.0f : columns == 16 ? 1.6f : 2.1f;
  }
  return of;
}

/// Rounds of items on so many multiprocessors.
int64_t rounds_of(int64_t items, int64_t multiprocessors) noexcept {
  return (items + multiprocessors - 1) / multiprocessors;
}

/// n segments a sequence, the first of which leads: computed in the transition pass, on
/// multiprocessors of its own, and as long as that pass takes. Infinite where it cannot be.
CutEstimate estimate_leading(const CutProblem& of, const BatchShape& batch, int64_t n) noexcept {
  const auto number = [](auto x) { return static_cast<float>(x); };
  const auto per_segment = static_cast<int64_t>(number(batch.sequences) * of.heads * of.slices),
             free = static_cast<int64_t>(of.multiprocessors) - per_segment,
             states = static_cast<int64_t>(number(batch.sequences) * of.exact);
  CutEstimate out{std::numeric_limits<float>::infinity(), 0.0f, static_cast<int32_t>(n)};
  if (n < 3 || free < 1) return out;
  const int64_t items = states * (n - 2) * static_cast<int64_t>(of.added + of.factor),
                turns = rounds_of(items, free),
                main = rounds_of(per_segment * (n - 1), static_cast<int64_t>(of.multiprocessors));
  const CutCosts& costs = of.costs;
  out.lead = static_cast<int8_t>(
      std::clamp(4.0f * number(turns) * costs.transition / of.chunk + 0.5f, 1.0f, 16.0f));
  const float quarters = number(out.lead) / 4.0f,
              length = std::ceil(number(batch.longest) / (number(n - 1) + quarters));
  if (length < number(device::kShortestSegment)) return out;
  const float in_turn = number(turns) * (length + costs.item) * costs.transition,
              leading = (length * quarters + costs.item) * of.chunk;
  out.time = std::max(in_turn, leading) + number(main) * (length + costs.item) * of.chunk +
             costs.join * number(n - 2) + costs.cut;
  return out;
}

/// Whether first segments may lead.
bool may_lead(const DeltaRuleProblem& p, const CutRequest& cut) noexcept {
  return !is_linear(p) && !core::present(p.key_gate) && has_equal_lengths(p) && !cut.may_forget &&
         cut.columns == cut.transition_columns;
}

CutEstimate estimate(const DeltaRuleProblem& p, const CutRequest& cut,
                     const BatchShape& batch) noexcept {
  const CutProblem of = case_of(p, cut, batch);
  const auto u32 = [](int64_t x) { return static_cast<uint32_t>(x); };
  const float whole = device::cut_time({u32(batch.longest), u32(batch.sequences), 0u, 0u}, of);
  CutEstimate best{whole, whole, 1};
  for (int64_t n = 2; n <= device::kMostSegments; ++n) {
    const int64_t length = (batch.longest + n - 1) / n, boundaries = batch.sequences * (n - 1);
    if (length < device::kShortestSegment || boundaries > cut.most_boundaries) break;
    const Cut segments{u32(length), u32(batch.sequences * n), u32(boundaries),
                       u32(batch.sequences)};
    const float time = device::cut_time(segments, of);
    if (time < best.time) best = {time, whole, static_cast<int32_t>(n)};
    if (!may_lead(p, cut)) continue;
    const CutEstimate leading = estimate_leading(of, batch, n);
    if (leading.time < best.time) best = {leading.time, whole, leading.count, leading.lead};
  }
  return best;
}

/// Estimates for lengths that the host may not know: sequences of equal length, or one that has
/// somewhat more than half of all tokens; where it knows the longest, as many of these as there may
/// be.
struct LengthEstimates {
  CutEstimate equal, skewed;
};

LengthEstimates estimate_lengths(const DeltaRuleProblem& p, const CutRequest& cut) noexcept {
  const int64_t N = p.rows.N;
  if (has_equal_lengths(p)) {
    const int64_t chunks = equal_chunks(p);
    const CutEstimate known = estimate(p, cut, {N * chunks, N, chunks});
    return {known, known};
  }
  const int64_t chunks = most_chunks(p), each = std::max<int64_t>(chunks / N, 1);
  if (knows_longest(p)) {
    const int64_t longest = (p.rows.longest + 63) / 64;
    const CutEstimate known = estimate(p, cut, {chunks, long_sequences(p), longest});
    return {known, known};
  }
  return {estimate(p, cut, {chunks, N, each}), estimate(p, cut, {chunks, 1, (chunks + each) / 2})};
}

/// Time of a chain of launches that finds nothing to cut, in chunks as the model's.
constexpr float kPlannerTime = 6.0f;

/// Whether the planner is asked, rather than all sequences left whole in `wide` or `narrow` items.
/// WHY not for any gain of unknown lengths: to ask costs as much as it would gain in short calls.
bool is_worth_asking(const DeltaRuleProblem& p, const LengthEstimates& wide,
                     const LengthEstimates& narrow) noexcept {
  const float equal = std::min(wide.equal.whole, narrow.equal.whole),
              skewed = std::min(wide.skewed.whole, narrow.skewed.whole);
  const float gain = 1.0f - std::min(wide.equal.time / equal, wide.skewed.time / skewed);
  return gain > (has_equal_lengths(p) ? 0.0f : 2.0f * kPlannerTime / (equal + kPlannerTime));
}

/// One number of both lengths: equal ones count twice.
float weigh(float equal, float skewed) noexcept { return equal * equal * skewed; }

/// The time of whole sequences whose last round is halved; infinite where it cannot be.
float halved_time(const DeltaRuleProblem& p, const CutRequest& cut) noexcept {
  const int64_t items = p.rows.N * p.HV * (p.V / 128);
  const bool fits = p.V % 128 == 0 && !is_linear(p) && !core::present(p.key_gate) &&
                    has_equal_lengths(p) && device::halves_fit(items, cut.multiprocessors);
  if (!fits) return std::numeric_limits<float>::infinity();
  return device::halved_time(equal_chunks(p), items, cut.multiprocessors, device::cut_costs(false));
}

/// Estimates of 128 columns; decides whether heads may forget. WHY not always where they are allowed
/// to: early starts lengthen the main pass, and where the transition pass fits the GPU in one round
/// anyway, leaving out some of its work makes nothing faster. With key-wise gates always, in as many
/// segments as exact ones would be: the look back reads one number a chunk there.
LengthEstimates estimate_segments(const DeltaRuleProblem& p, CutRequest* cut) noexcept {
  const LengthEstimates forgetful = estimate_lengths(p, *cut);
  if (!cut->may_forget) return forgetful;
  CutRequest all = *cut;
  all.may_forget = false;
  const LengthEstimates exact = estimate_lengths(p, all);
  if (core::present(p.key_gate)) return exact;
  if (weigh(exact.equal.time, exact.skewed.time) >=
      weigh(forgetful.equal.time, forgetful.skewed.time)) {
    return forgetful;
  }
  cut->may_forget = false;
  return exact;
}

/// The cut of least expected time: in one launch, in segments, or whole in 128 or 64 columns of V a
/// work item. WHY 64 columns are not cut: slower than one of the two wherever it was measured.
CutRequest choose_by_model(const DeltaRuleProblem& p, const Machine& machine,
                           CutRequest cut) noexcept {
  if (p.rows.N == 0 || p.rows.T == 0) return cut.as_whole();
  CutRequest whole = cut.as_whole();
  LengthEstimates wide = estimate_segments(p, &cut);
  const float halved = halved_time(p, cut);
  whole.halves_tail = halved < wide.equal.whole;
  if (whole.halves_tail) {
    // Lengths are equal: both estimates are the same.
    wide.equal.whole = wide.skewed.whole = halved;
    wide.equal.time = wide.skewed.time = std::min(wide.equal.time, halved);
  }
  const bool kept_columns = p.V % 128 != 0;
  whole.columns = 64;
  const LengthEstimates narrow = kept_columns ? wide : estimate_lengths(p, whole);
  const OneLaunchCut one = fastest_in_one_launch(p, machine);
  if (one.rule != CutRule::kWhole && one.time < std::min(wide.equal.time, narrow.equal.whole)) {
    return cut.as_one_launch(one.rule, one.parts);
  }
  if (is_worth_asking(p, wide, narrow)) {
    const bool equal = has_equal_lengths(p);
    if (equal) {
      cut_equally(p, wide.equal.count, wide.equal.lead, device::kShortestSegment, &cut);
    }
    cut.may_narrow = !equal && !knows_longest(p) && narrow.equal.whole < wide.equal.whole;
    return cut;
  }
  const auto time = [](const LengthEstimates& of) {
    return weigh(of.equal.whole, of.skewed.whole);
  };
  whole.columns = time(narrow) < time(wide) ? 64 : cut.columns;
  whole.halves_tail = whole.halves_tail && whole.columns == 128;
  return whole;
}

/// All that choose_by_model() looks at besides what choose_cut() derives from it.
struct ModelQuestion {
  int64_t N = 0, T = 0, longest = 0, HV = 0, K = 0, V = 0;
  Machine machine;
  bool packed = false, linear = false, key_gates = false, as_given = false, takes_prefixes = false,
       may_forget = false;

  bool operator==(const ModelQuestion&) const = default;
};

/// choose_by_model(), or its last answer on this thread where the question is the same: a cache of a
/// pure function, which changes no answer. PERF the model takes up to several microseconds, half a
/// microsecond for one sequence of 8192 tokens and 16 heads; a network asks for the same sizes layer
/// after layer, and is answered in 20 ns.
CutRequest choose_or_recall(const DeltaRuleProblem& p, const Machine& machine,
                            const CutRequest& cut) noexcept {
  static thread_local ModelQuestion known;
  static thread_local CutRequest answer;
  const ModelQuestion question{p.rows.N,
                               p.rows.T,
                               p.rows.longest,
                               p.HV,
                               p.K,
                               p.V,
                               machine,
                               core::present(p.rows.cu_seqlens),
                               has_scalar_factors(p),
                               core::present(p.key_gate),
                               takes_keys_as_given(p),
                               takes_prefixes(p),
                               cut.may_forget};
  if (question != known) {
    answer = choose_by_model(p, machine, cut);
    known = question;
  }
  return answer;
}

/// Fills in the rule, what it is about, and most_boundaries.
void set_rule(const DeltaRuleProblem& p, sluice_split split, int32_t value,
              CutRequest* cut) noexcept {
  const int64_t chunks = most_chunks(p);
  int64_t most = 0;
  if (split == SLUICE_SPLIT_SEGMENTS) {
    cut->rule = CutRule::kCount;
    cut->count = value;
    if (has_equal_lengths(p) && cut_equally(p, value, 0, 1, cut)) return;
    most = std::min(p.rows.N * (value - 1), chunks);
  } else if (split == SLUICE_SPLIT_LENGTH) {
    cut->rule = CutRule::kLength;
    cut->length = value > 0 ? value / 64 : default_leaf(p.HV);
    most = chunks / cut->length;
  } else if (split == SLUICE_SPLIT_AUTO) {
    cut->rule = CutRule::kModel;
    most = std::min(kPairsPerMultiprocessor * cut->multiprocessors / p.HV,
                    chunks / device::kShortestSegment);
  }
  // BOUND: boundaries * HV * V / 8 is a uint32. The planner cuts nothing where there is no room.
  cut->most_boundaries = static_cast<int32_t>(std::min(most, (int64_t{1} << 26) / p.HV));
}

}  // namespace

/// PERF each of the CTAs reads M whole, and a second round takes as long as the first. Those of heads
/// that have forgotten end at once.
int join_columns(const CutRequest& cut, int64_t states, int64_t V) noexcept {
  const float share = cut.may_forget ? device::kGuessedShare : 1.0f,
              columns = static_cast<float>(states * V) * share,
              most = static_cast<float>(cut.multiprocessors);
  if (columns <= 8.0f * most) return 8;
  return columns <= 16.0f * most ? 16 : 32;
}

/// WHY so many: four rounds of a short prompt's work.
int32_t default_leaf(int64_t HV) noexcept {
  return static_cast<int32_t>(std::clamp<int64_t>(4 * HV, 16, 256));
}

CutRequest choose_cut(const DeltaRuleProblem& p, const Machine& machine,
                      const CutOverride& environment) noexcept {
  const bool own = p.split != SLUICE_SPLIT_AUTO;
  const sluice_split split = own ? p.split : environment.split;
  CutRequest cut;
  cut.multiprocessors = machine.multiprocessors;
  const bool wide = p.V % 128 == 0;
  cut.columns = !wide || split == SLUICE_SPLIT_COLUMNS ? 64 : 128;
  cut.transition_columns = (p.K == 128 || has_scalar_factors(p)) && wide ? 128 : 64;
  cut.scalar_factors = has_scalar_factors(p);
  cut.may_forget = may_forget(p, environment);
  cut.in_order = has_equal_lengths(p);
  cut.long_sequences = static_cast<int32_t>(long_sequences(p));
  set_rule(p, split, own ? p.split_value : environment.value, &cut);
  if (split == SLUICE_SPLIT_AUTO) {
    if (environment.cluster > 0 && takes_clusters(p)) {
      return cut.as_one_launch(CutRule::kCluster, environment.cluster);
    }
    if (environment.prefix > 0 && takes_prefixes(p)) {
      return cut.as_one_launch(CutRule::kPrefix, environment.prefix);
    }
    cut = choose_or_recall(p, machine, cut);
    if (cut.is_one_launch()) return cut;
  }
  return cut.rule == CutRule::kWhole || cut.most_boundaries == 0 ? cut.as_whole() : cut;
}

size_t cut_workspace(const DeltaRuleProblem& p, const CutRequest& cut) noexcept {
  if (cut.is_one_launch() || (cut.rule == CutRule::kWhole && cut.in_order)) return 0;
  return device::segment_workspace(p.rows.N, p.HV, p.K, p.V, cut.most_boundaries).end;
}

size_t prepared_offset(const DeltaRuleProblem& p, const CutRequest& cut) noexcept {
  return (cut_workspace(p, cut) + 255) / 256 * 256;
}

size_t prefill_workspace(const DeltaRuleProblem& p, const device::CutRequest& cut) noexcept {
  int64_t bytes = 0;
  if (core::present(p.key_gate)) {
    bytes = key_records(p) * p.HV * (device::key_record_bytes(p.K) + int64_t{sizeof(float)});
  } else {
    const int64_t heads = (prepares_norms(p) ? p.H : 0) + (prepares_numbers(p) ? p.HV : 0);
    bytes = p.rows.B * p.rows.T * 2 * heads * int64_t{sizeof(float)};
  }
  return bytes == 0 ? cut_workspace(p, cut) : prepared_offset(p, cut) + static_cast<size_t>(bytes);
}

int cut_suffix(const CutRequest& cut, int64_t V) noexcept {
  if (cut.rule == CutRule::kCluster) return 4;
  if (cut.rule == CutRule::kPrefix) return 5;
  const bool narrow = V > 64 && cut.columns == 64, in_segments = cut.rule != CutRule::kWhole;
  return (narrow ? 1 : 0) + (in_segments ? 2 : 0);
}

}  // namespace sluice::cuda
