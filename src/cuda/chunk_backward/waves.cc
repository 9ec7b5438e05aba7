// Chooses the waves of a chunk_backward by tensor cores, and slices its views.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/waves.h"

#include <algorithm>

#include "cuda/chunk_backward/cut.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/kernels/backward/config.h"

namespace sluice::cuda {
namespace {

using backward::SegmentCut;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::Tensor;

constexpr size_t kMostBytes = 1536;  ///< of a token of whole chunks and a value head
/// Where heads are left that fill the GPU. PERF half of it cuts 4 sequences of 8192 tokens of 16/32
/// heads in two waves, whose chains take 64 columns an item in place of 128.
constexpr size_t kMostWorkspace = size_t{1} << 31;

/// Elements first..first + count of an axis.
void slice(Tensor* t, int axis, int64_t first, int64_t count) noexcept {
  if (!core::present(*t)) return;
  const int64_t bytes = first * t->stride[axis] * (t->dtype.bits / 8);
  t->data = static_cast<std::byte*>(t->data) + bytes;
  t->shape[axis] = count;
}

size_t bytes_of(const ChunkBackwardProblem& all, const SegmentCut& cut, int64_t key_heads,
                WhichAddresses which) noexcept {
  const ChunkBackwardProblem b = wave_of(all, 0, key_heads);
  BackwardWorkspace workspace(b.forward, nullptr);
  backward::BackwardParams params = lower_backward(b);
  params.cut = cut;
  place_tiles(b.forward, which, workspace, &params);
  place_boundaries(b.forward, workspace, &params);
  return workspace.bytes();
}

/// Whether views can be cut between key heads: value heads of one are neighbours.
bool can_be_cut(const DeltaRuleProblem& p) noexcept {
  return p.r == 1 || p.head_map == SLUICE_HEAD_MAP_BLOCK;
}

/// Bytes that `p` is to do with.
size_t allowance(const DeltaRuleProblem& p, const SegmentCut& cut,
                 const Machine& machine) noexcept {
  const auto r = static_cast<size_t>(p.r);
  const size_t key_head =
      (kMostBytes * static_cast<size_t>(chunk_rows(p)) + boundary_bytes(p, cut)) * r;
  const auto heads_below = static_cast<int64_t>(kMostWorkspace / std::max<size_t>(key_head, 1));
  // An item of a chain is half a value head.
  const int64_t of_one = 2 * std::max<int64_t>(p.rows.N, 1) * p.r;
  const int64_t filling = (machine.multiprocessors + of_one - 1) / of_one;
  return key_head * static_cast<size_t>(std::min(p.H, std::max(heads_below, filling)));
}

}  // namespace

Waves choose_waves(const ChunkBackwardProblem& b, const SegmentCut& cut,
                   const Machine& machine) noexcept {
  const DeltaRuleProblem& p = b.forward;
  const size_t worst = bytes_of(b, cut, p.H, WhichAddresses::kWorst);
  const size_t wanted = allowance(p, cut, machine);
  if (worst <= wanted || p.H == 1 || !can_be_cut(p)) return {p.H, worst, cut};
  const size_t bytes = std::max(wanted, bytes_of(b, cut, 1, WhichAddresses::kWorst));
  // The most key heads that fit at these addresses, at least one.
  int64_t fits = 1, too_many = p.H + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (bytes_of(b, cut, middle, WhichAddresses::kThese) <= bytes ? fits : too_many) = middle;
  }
  const int64_t waves = (p.H + fits - 1) / fits;
  return {(p.H + waves - 1) / waves, bytes, cut};
}

ChunkBackwardProblem wave_of(const ChunkBackwardProblem& all, int64_t first,
                             int64_t count) noexcept {
  if (count == all.forward.H) return all;
  ChunkBackwardProblem b = all;
  DeltaRuleProblem& p = b.forward;
  const int64_t r = p.r;
  p.H = count, p.HV = count * r;
  for (Tensor* t : {&p.q, &p.k, &b.dq, &b.dk}) slice(t, 2, first, count);
  for (Tensor* t : {&p.v, &b.d_o, &b.dv}) slice(t, 2, first * r, p.HV);
  for (Tensor* t : {&p.gate, &p.beta, &b.dgate, &b.dbeta}) slice(t, 2, first, count);
  for (Tensor* t : {&p.A_log, &p.dt_bias, &b.dA_log, &b.ddt_bias}) slice(t, 0, first * r, p.HV);
  for (Tensor* t : {&p.state.initial, &b.d_final, &b.dinitial}) slice(t, 1, first * r, p.HV);
  return b;
}

}  // namespace sluice::cuda
