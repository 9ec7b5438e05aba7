// Asks caller, environment and a model of time how the sequences of chunk_backward are cut.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/cut.h"

#include <algorithm>

#include "cuda/chunk_forward/cut.h"
#include "cuda/kernels/backward/config.h"

namespace sluice::cuda {
namespace {

using backward::SegmentCut;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::present;

bool is_packed(const DeltaRuleProblem& p) noexcept { return present(p.rows.cu_seqlens); }

/// Chunks of each sequence, if they have one length; a packed one may be shorter.
int64_t chunks_of_each(const DeltaRuleProblem& p) noexcept {
  return core::chunk_count(p.rows.T, backward::kTokens);
}

/// What rows and states leave of the workspace's 1536 bytes a token and value head.
constexpr int64_t kSpareBytes = 96;

/// Segments of `length` chunks. None where no sequence can have two.
SegmentCut by_length(const DeltaRuleProblem& p, int64_t length) noexcept {
  const int64_t chunks = chunks_of_each(p), each = core::chunk_count(chunks, length);
  if (each < 2) return {};
  SegmentCut cut{};
  cut.length = static_cast<int32_t>(length);
  if (is_packed(p)) {
    const int64_t rows = backward::kTokens * length;
    cut.slots = p.rows.T / rows + p.rows.N;
    cut.boundaries = (p.rows.T - 1) / rows;
  } else {
    cut.slots = p.rows.N * each;
    cut.boundaries = p.rows.N * (each - 1);
  }
  return cut;
}

/// `count` segments a sequence. The host knows the lengths of a batch and of one sequence.
SegmentCut by_count(const DeltaRuleProblem& p, int64_t count) noexcept {
  if (!is_packed(p) || p.rows.N == 1) {
    return by_length(p, core::chunk_count(chunks_of_each(p), count));
  }
  SegmentCut cut{};
  cut.count = static_cast<int32_t>(count);
  cut.slots = p.rows.N * count;
  cut.boundaries = p.rows.N * (count - 1);
  return cut;
}

// ------------------------------------------------------------------------- model of time ----

/// Of an H200, us; docs/lab/backward.md says how near they come.
constexpr double kStateStep = 1.0, kGradientStep = 1.8;  ///< of a chunk and 64 columns of V
constexpr double kBytesStep = 0.05;  ///< of a chunk and head whose states are stored, both chains
constexpr double kItem = 5.0;        ///< before its first step and after its last
constexpr double kBoundary = 1.5, kFold = 6.0, kLaunch = 4.0;
/// A cut that gains less is not worth what it rounds otherwise.
constexpr double kLeastGain = 0.9;
constexpr int64_t kShortest = 8, kMost = 64;  ///< chunks of a segment that AUTO makes; segments

/// One launch of both chains: gradients first, whose items take longest.
double launch_time(double gradients, double states, double length,
                   int64_t multiprocessors) noexcept {
  const double back = length * kGradientStep + kItem, forth = length * kStateStep + kItem;
  const auto ctas = static_cast<double>(multiprocessors);
  const double work = (gradients * back + states * forth) / ctas;
  // The last item begins when the others fill the GPU.
  const bool one_round = gradients + states <= ctas;
  return std::max(one_round ? 0.0 : work + forth / 2, gradients > 0 ? back : forth);
}

/// Segments of as many sequences of `chunks` chunks.
double cut_time(int64_t sequences, int64_t chunks, int64_t count, int64_t HV, int64_t V,
                int64_t multiprocessors) noexcept {
  const int64_t length = core::chunk_count(chunks, count), slices = V / 64;
  const auto items = static_cast<double>(sequences * HV * slices),
             n = static_cast<double>(core::chunk_count(chunks, length)),
             steps = static_cast<double>(length);
  const double bytes = static_cast<double>(sequences * HV * chunks) * kBytesStep * (n - 1) / n;
  return launch_time(items * (n - 1), items * (2 * n - 3), steps, multiprocessors) + kFold +
         kBoundary * (n - 2) +
         std::max(launch_time(items * (n - 1), items * (n - 1), steps, multiprocessors), bytes) +
         2 * kLaunch;
}

/// Whole sequences: side by side where all items fit, else one chain after the other.
double whole_time(int64_t sequences, int64_t chunks, int64_t HV, int64_t V,
                  int64_t multiprocessors) noexcept {
  const int64_t items = sequences * HV * (V / 64);
  const auto steps = static_cast<double>(chunks);
  const double bytes = static_cast<double>(sequences * HV * chunks) * kBytesStep;
  if (2 * items <= multiprocessors) return std::max(steps * kGradientStep + kItem, bytes);
  const int64_t rounds = (items + multiprocessors - 1) / multiprocessors;
  return std::max(static_cast<double>(rounds) * (steps * (kGradientStep + kStateStep) + 2 * kItem),
                  bytes);
}

/// The cut of least expected time that needs no more memory than a call has without. WHY equal
/// lengths: of other packs the host knows nothing.
SegmentCut by_model(const DeltaRuleProblem& p, int64_t multiprocessors) noexcept {
  const int64_t sequences = p.rows.N;
  const int64_t tokens = is_packed(p) ? p.rows.T / sequences : p.rows.T;
  const int64_t chunks = core::chunk_count(tokens, backward::kTokens);
  double least = kLeastGain * whole_time(sequences, chunks, p.HV, p.V, multiprocessors);
  SegmentCut best{};
  for (int64_t n = 2; n <= kMost && chunks / n >= kShortest; ++n) {
    const double time = cut_time(sequences, chunks, n, p.HV, p.V, multiprocessors);
    if (!(time < least)) continue;
    const SegmentCut cut = by_length(p, core::chunk_count(chunks, n));
    if (boundary_bytes(p, cut) == 0) least = time, best = cut;
  }
  return best;
}

/// BOUND: numbers of items are an int32.
bool is_countable(const DeltaRuleProblem& p, const SegmentCut& cut) noexcept {
  const int64_t heads = 2 * p.HV * (p.V / 8);
  return (cut.slots + cut.boundaries) < (int64_t{1} << 31) / heads;
}

}  // namespace

SegmentCut choose_backward_cut(const ChunkBackwardProblem& b, const Machine& machine,
                               const CutOverride& environment) noexcept {
  const DeltaRuleProblem& p = b.forward;
  const bool rows = present(b.dq) || present(b.dk) || present(b.dv) || present(b.dgate) ||
                    present(b.dbeta) || present(b.dA_log) || present(b.ddt_bias);
  // What only wants the gradients of initial states has one chain alone.
  if (p.rule != SLUICE_RULE_GATED_DELTA || !rows || p.rows.N == 0 || p.rows.T == 0) return {};
  const bool own = p.split != SLUICE_SPLIT_AUTO;
  const sluice_split split = own ? p.split : environment.split;
  const int64_t value = own ? p.split_value : environment.value;
  SegmentCut cut{};
  if (split == SLUICE_SPLIT_SEGMENTS) {
    cut = by_count(p, value);
  } else if (split == SLUICE_SPLIT_LENGTH) {
    cut = by_length(p, value > 0 ? value / backward::kTokens : default_leaf(p.HV));
  } else if (split == SLUICE_SPLIT_AUTO) {
    cut = by_model(p, machine.multiprocessors);
  }
  return is_countable(p, cut) ? cut : SegmentCut{};
}

bool lie_in_states(const DeltaRuleProblem& p, const SegmentCut& cut) noexcept {
  // Two of float32 are as long as four states of 16 bits.
  return p.rows.N == 1 && cut.length > 0 &&
         chunk_rows(p) / backward::kTokens - cut.length >= 4 * cut.boundaries;
}

int64_t chunk_rows(const DeltaRuleProblem& p) noexcept {
  const int64_t chunks =
      is_packed(p) ? p.rows.T / backward::kTokens + p.rows.N : p.rows.B * chunks_of_each(p);
  return chunks * backward::kTokens;
}

size_t boundary_bytes(const DeltaRuleProblem& p, const SegmentCut& cut) noexcept {
  const int64_t matrices = lie_in_states(p, cut) ? 2 : 4,
                bytes = cut.boundaries * matrices * p.K * p.V * int64_t{sizeof(float)};
  return static_cast<size_t>(std::max<int64_t>(bytes - kSpareBytes * chunk_rows(p), 0));
}

}  // namespace sluice::cuda
