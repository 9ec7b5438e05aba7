// Estimates the time of linear attention in one launch, in clusters and with prefixes.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/cut.h"

#include <algorithm>

#include "cuda/chunk_forward/lengths.h"
#include "cuda/environment.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::CutRule;

/// Longest sequence whose segments may each sum up all before them.
constexpr int64_t kMostPrefixTokens = 8192;

/// What segments in clusters are judged by: N x HV x slices of V, chunks of each, CTAs of a
/// cluster, and what the GPU runs at once.
struct ClusterCase {
  int64_t items, chunks, ctas, resident, multiprocessors;
};

/// Time of linear attention in clusters, in units of cut_time(): both passes of a chunk, and
/// launch, exchange and first loads, which later waves have half of. Fitted to forced sizes on an
/// H200: 16 heads, 512 to 131072 tokens, 9 % root mean square.
float cluster_time(const ClusterCase& of) noexcept {
  constexpr float kChunk = 1.47f, kFullChunk = 1.5f, kFirst = 11.5f, kNext = 6.0f;
  const int64_t waves = (of.items + of.resident - 1) / of.resident,
                length = (of.chunks + of.ctas - 1) / of.ctas;
  const auto number = [](int64_t x) { return static_cast<float>(x); };
  const float in_waves = number(waves * length) * kChunk + kFirst + number(waves - 1) * kNext,
              moved = number(of.items * of.chunks) / number(of.multiprocessors) * kFullChunk;
  return std::max(in_waves, moved);
}

/// What segments that sum up all before them are judged by: N x HV x slices of V, chunks of each,
/// blocks of a segment.
struct PrefixCase {
  int64_t items, chunks, blocks, multiprocessors;
};

/// Time of linear attention with prefixes, in the same units: of the last segment, or of all of
/// them by turns. Fitted to an H200: 16 heads, 512 to 4096 tokens, 1 to 4 blocks, within 10 %.
float prefix_time(const PrefixCase& of) noexcept {
  constexpr float kFirst = 3.0f, kBlock = 3.1f, kChunk = 0.545f;
  const int64_t own = std::min(2 * of.blocks, of.chunks), parts = (of.chunks + own - 1) / own;
  const auto number = [](int64_t x) { return static_cast<float>(x); };
  const float blocks = kFirst + number((own + 1) / 2) * kBlock,
              last = blocks + number(own * (parts - 1)) * kChunk,
              all = number(of.items * parts) * (blocks + last) / 2;
  return std::max(last, all / number(of.multiprocessors));
}

void keep_faster(OneLaunchCut& best, const OneLaunchCut& other) noexcept {
  if (best.rule == CutRule::kWhole || other.time < best.time) best = other;
}

}  // namespace

// WHY not lengths that differ: every sequence would have as many CTAs as the longest one.
bool takes_clusters(const DeltaRuleProblem& p) noexcept {
  // BOUND: CTAs of the grid are an int32.
  return has_scalar_factors(p) && has_equal_lengths(p) && p.V % 128 == 0 && p.rows.N > 0 &&
         p.rows.T > 0 && p.rows.N * p.HV * (p.V / 128) < int64_t{1} << 27;
}

// WHY not packed sequences: rows past their end may be another's. WHY not initial states: one CTA
// may have written the final state before another one reads the initial one, in the same memory.
bool takes_prefixes(const DeltaRuleProblem& p) noexcept {
  // BOUND: extents of a grid.
  return has_scalar_factors(p) && !core::present(p.rows.cu_seqlens) && p.V % 128 == 0 &&
         p.rows.N > 0 && p.rows.N < 65536 && p.rows.T > 0 && p.rows.T <= kMostPrefixTokens &&
         !core::present(p.checkpoints) && !core::present(p.state.read_slots) &&
         !core::present(p.state.write_slots) && !core::present(p.state.initial);
}

OneLaunchCut fastest_in_one_launch(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  OneLaunchCut best;
  if (!has_scalar_factors(p)) return best;
  const int64_t items = p.rows.N * p.HV * (p.V / 128), chunks = equal_chunks(p);
  for (size_t i = 0; i < kClusterSizes.size() && takes_clusters(p); ++i) {
    if (machine.clusters[i] == 0) continue;
    const ClusterCase of{items, chunks, kClusterSizes[i], machine.clusters[i],
                         machine.multiprocessors};
    keep_faster(best, {cluster_time(of), CutRule::kCluster, kClusterSizes[i]});
  }
  for (size_t i = 0; i < kPrefixBlocks.size() && takes_prefixes(p); ++i) {
    const PrefixCase of{items, chunks, kPrefixBlocks[i], machine.multiprocessors};
    keep_faster(best, {prefix_time(of), CutRule::kPrefix, kPrefixBlocks[i]});
  }
  return best;
}

}  // namespace sluice::cuda
