// Chooses the waves of a chunk_backward by tensor cores, and slices its views.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/waves.h"

#include <algorithm>

#include "cuda/chunk_backward/cut.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using backward::SegmentCut;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::present, core::Tensor;

constexpr size_t kMostBytes = 1536;  ///< of a token of whole chunks and a value head
/// Where heads are left that fill the GPU. PERF half of it cuts 4 sequences of 8192 tokens of 16/32
/// heads in two waves, whose chains take 64 columns an item in place of 128.
constexpr size_t kMostWorkspace = size_t{1} << 31;

// ------------------------------------------------------------------------------- slices ----

/// Elements first, first + step, .. of an axis.
struct Slice {
  int64_t first, step, count;
};

void take(const Slice& s, int axis, Tensor* t) noexcept {
  if (!present(*t)) return;
  const int64_t bytes = s.first * t->stride[axis] * (t->dtype.bits / 8);
  t->data = static_cast<std::byte*>(t->data) + bytes;
  t->stride[axis] *= s.step;
  t->shape[axis] = s.count;
}

/// Whether value heads of a key head are not neighbours, so that heads are cut by steps.
bool is_by_steps(const DeltaRuleProblem& p) noexcept {
  return p.r > 1 && p.head_map == SLUICE_HEAD_MAP_CYCLIC;
}

/// Whether the value heads of [B,T,HV/r,r] are one step apart; as absent ones are.
bool has_even_heads(const Tensor& t) noexcept {
  return !present(t) || t.shape[3] == 1 || t.stride[2] == t.shape[3] * t.stride[3];
}
/// [B,T,HV/r,r] of such as [B,T,HV,1].
void flatten_heads(Tensor* t) noexcept {
  if (t->shape[3] != 1) t->stride[2] = t->stride[3];
  t->shape[2] *= t->shape[3];
  t->shape[3] = 1;
}

// ------------------------------------------------------------------------------- choice ----

int64_t quotient_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }

/// The least divisor of n that is not below `least`, which is at most n.
int64_t divisor_from(int64_t n, int64_t least) noexcept {
  int64_t found = n;
  for (int64_t small = 1; small <= n / small; ++small) {
    if (n % small != 0) continue;
    for (const int64_t d : {small, n / small}) found = d >= least ? std::min(found, d) : found;
  }
  return found;
}

/// Key heads of a wave, where there are so many waves of heads or a few more.
int64_t heads_in(const DeltaRuleProblem& p, int64_t waves) noexcept {
  return is_by_steps(p) ? p.H / divisor_from(p.H, waves) : quotient_up(p.H, waves);
}

int64_t most_head_waves(const ChunkBackwardProblem& b) noexcept {
  const DeltaRuleProblem& p = b.forward;
  if (!is_by_steps(p)) return p.H;
  for (const Tensor* t : {&p.gate, &p.beta, &b.dgate, &b.dbeta}) {
    if (!has_even_heads(*t)) return 1;
  }
  const bool states = present(p.state.initial) || present(b.d_final) || present(b.dinitial);
  return states ? 1 : p.H;
}

int64_t most_entry_waves(const DeltaRuleProblem& p) noexcept {
  return std::max<int64_t>(p.rows.B, 1);
}

/// The call with rows that lie as badly as in any of its waves: those that are not all at multiples
/// of 16 bytes may begin at one in the first wave alone.
ChunkBackwardProblem with_worst_rows(ChunkBackwardProblem b) noexcept {
  DeltaRuleProblem& p = b.forward;
  for (Tensor* t : {&p.q, &p.k, &p.v, &b.d_o, &b.dq, &b.dk, &b.dv}) {
    if (has_packed_strides(*t)) continue;
    t->data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(t->data) | 1);
  }
  return b;
}

size_t bytes_of(const ChunkBackwardProblem& all, const Waves& waves,
                WhichAddresses which) noexcept {
  const ChunkBackwardProblem heads = heads_of_wave(all, 0, waves.key_heads),
                             b = entries_of_wave(heads, 0, waves.entries);
  backward::BackwardParams params = lower_backward(b);
  params.cut = cut_of_wave(waves.cut, all.forward.rows.B, waves.entries);
  params.window = window_of(waves, 0);
  BackwardWorkspace workspace(b.forward, nullptr, params.window);
  place_head_sums(heads.forward, 0, workspace, &params);
  place_tiles(b.forward, which, workspace, &params);
  place_boundaries(b.forward, workspace, &params);
  place_borders(b.forward, workspace, &params);
  return workspace.bytes();
}

/// Bytes that `p` is to do with. Counted in key heads of a batch entry, or of a pack.
size_t allowance(const DeltaRuleProblem& p, const SegmentCut& cut,
                 const Machine& machine) noexcept {
  const int64_t entries = most_entry_waves(p);
  const size_t all_entries =
                   kMostBytes * static_cast<size_t>(chunk_rows(p)) + boundary_bytes(p, cut),
               one = all_entries * static_cast<size_t>(p.r) / static_cast<size_t>(entries);
  const auto below = static_cast<int64_t>(kMostWorkspace / std::max<size_t>(one, 1));
  // An item of a chain is half a value head.
  const int64_t items = 2 * std::max<int64_t>(p.rows.N / entries, 1) * p.r,
                filling = quotient_up(machine.multiprocessors, items);
  return one * static_cast<size_t>(std::min(p.H * entries, std::max(below, filling)));
}

/// The least count of waves that fits, `most` if no smaller one does.
template <class Fits>
int64_t fewest(int64_t most, const Fits& fits) noexcept {
  int64_t too_few = 0;
  while (most - too_few > 1) {
    const int64_t middle = too_few + (most - too_few) / 2;
    (fits(middle) ? most : too_few) = middle;
  }
  return most;
}

constexpr int64_t kMostWindows = 64;

/// Rows of as few windows as fit into `most` bytes, where a wave is the whole call; 0: none do.
int64_t choose_window(const ChunkBackwardProblem& b, Waves waves, WhichAddresses which,
                      size_t most) noexcept {
  const DeltaRuleProblem& p = b.forward;
  if (p.rule != SLUICE_RULE_GATED_DELTA || p.rows.B > 1 || waves.key_heads < p.H) return 0;
  const int64_t chunks = core::chunk_count(p.rows.T, backward::kTokens);
  for (int64_t count = 2; count <= std::min(chunks, kMostWindows); ++count) {
    waves.window_rows = core::chunk_count(chunks, count) * backward::kTokens;
    if (bytes_of(b, waves, which) <= most) return waves.window_rows;
  }
  return 0;
}

}  // namespace

backward::Window window_of(const Waves& waves, int64_t number) noexcept {
  backward::Window window{};
  window.first = number * waves.window_rows;
  window.end = window.first + waves.window_rows;
  return window;
}

Waves choose_waves(const ChunkBackwardProblem& all, const SegmentCut& cut,
                   const Machine& machine) noexcept {
  const ChunkBackwardProblem b = with_worst_rows(all);
  const DeltaRuleProblem& p = b.forward;
  const int64_t B = p.rows.B, head_waves = most_head_waves(b), entry_waves = most_entry_waves(p);
  Waves waves{p.H, B, 0, cut, 0};
  waves.bytes = bytes_of(b, waves, WhichAddresses::kWorst);
  const size_t wanted = allowance(p, cut, machine);
  if (waves.bytes <= wanted) return waves;
  Waves least{heads_in(p, head_waves), quotient_up(B, entry_waves), 0, cut, 0};
  least.window_rows = choose_window(b, least, WhichAddresses::kWorst, wanted);
  waves.bytes = std::max(wanted, bytes_of(b, least, WhichAddresses::kWorst));
  const auto fits = [&](int64_t key_heads, int64_t entries) {
    return bytes_of(b, {key_heads, entries, 0, cut, 0}, WhichAddresses::kThese) <= waves.bytes;
  };
  waves.key_heads =
      heads_in(p, fewest(head_waves, [&](int64_t count) { return fits(heads_in(p, count), B); }));
  waves.entries = quotient_up(B, fewest(entry_waves, [&](int64_t count) {
                                return fits(waves.key_heads, quotient_up(B, count));
                              }));
  if (!fits(waves.key_heads, waves.entries)) {
    waves.window_rows = choose_window(b, waves, WhichAddresses::kThese, waves.bytes);
  }
  return waves;
}

ChunkBackwardProblem heads_of_wave(const ChunkBackwardProblem& all, int64_t number,
                                   int64_t key_heads) noexcept {
  const int64_t H = all.forward.H, r = all.forward.r;
  if (key_heads == H) return all;
  ChunkBackwardProblem b = all;
  DeltaRuleProblem& p = b.forward;
  const bool by_steps = is_by_steps(p);
  const int64_t first = by_steps ? number : number * key_heads, step = by_steps ? H / key_heads : 1;
  p.H = by_steps ? key_heads : std::min(key_heads, H - first);
  p.HV = p.H * r;
  const Slice keys{first, step, p.H}, values{by_steps ? first : first * r, step, p.HV};
  for (Tensor* t : {&p.q, &p.k, &b.dq, &b.dk}) take(keys, 2, t);
  for (Tensor* t : {&p.v, &b.d_o, &b.dv}) take(values, 2, t);
  for (Tensor* t : {&p.gate, &p.beta, &b.dgate, &b.dbeta}) {
    if (by_steps) flatten_heads(t);
    take(by_steps ? values : keys, 2, t);
  }
  for (Tensor* t : {&p.A_log, &p.dt_bias, &b.dA_log, &b.ddt_bias}) take(values, 0, t);
  for (Tensor* t : {&p.state.initial, &b.d_final, &b.dinitial}) take(values, 1, t);
  return b;
}

ChunkBackwardProblem entries_of_wave(const ChunkBackwardProblem& all, int64_t first,
                                     int64_t count) noexcept {
  if (count == all.forward.rows.B) return all;
  ChunkBackwardProblem b = all;
  DeltaRuleProblem& p = b.forward;
  p.rows.B = p.rows.N = count;
  for (Tensor* t : {&p.q, &p.k, &p.v, &p.gate, &p.beta, &p.state.initial, &b.d_o, &b.d_final, &b.dq,
                    &b.dk, &b.dv, &b.dgate, &b.dbeta, &b.dinitial}) {
    take({first, 1, count}, 0, t);
  }
  return b;
}

SegmentCut cut_of_wave(SegmentCut cut, int64_t B, int64_t entries) noexcept {
  if (entries == B) return cut;
  cut.slots = cut.slots / B * entries;
  cut.boundaries = cut.boundaries / B * entries;
  return cut;
}

}  // namespace sluice::cuda
