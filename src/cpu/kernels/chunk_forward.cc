// Runs chunk_forward: cuts the batch into items and runs them, longest sequences first.
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/chunk_forward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "cpu/kernels/chunk_forward-inl.h"

#if HWY_ONCE
#include "cpu/isa.hpp"
#include "cpu/kernels/operators.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

HWY_EXPORT(chunk_item);

/// Whether the products of this problem are bfloat16 dot products: where its rows are bfloat16, in
/// whole panels, and the instruction set in use has them. WHY not with a float32 o: who asks for
/// one of bfloat16 rows goes on with it as float32 arithmetic gives it; so do layers.
bool runs_on_pairs(const core::DeltaRuleProblem& problem) noexcept {
  return core::same(problem.v.dtype, core::kBFloat16) &&
         core::same(problem.o.dtype, core::kBFloat16) && problem.K % kPairRows == 0 &&
         problem.V % kPairColumns == 0 && isa_has_bfloat16_dots();
}

/// How the memory of a call is used: one int64 per sequence (their order), then scratch.
struct ChunkMemory {
  int64_t order_bytes;
  ChunkScratch scratch;

  ChunkMemory(const core::DeltaRuleProblem& problem, const ChunkCut& cut) noexcept
      : order_bytes(round_up(problem.rows.N * static_cast<int64_t>(sizeof(int64_t)), 64)),
        scratch(problem.K, std::min(cut.columns, problem.V), cut.key_heads * cut.heads,
                core::present(problem.key_gate), runs_on_pairs(problem)) {}
};

/// The cut that every content of cu_seqlens may need: one sequence may hold all tokens, and then
/// items are finest, or all are equal, and then they are widest.
ChunkCut widest_cut(const core::DeltaRuleProblem& problem) noexcept {
  return ChunkCut(problem, std::max<int64_t>(problem.rows.N, 1), worker_count());
}

int workers_for(const core::DeltaRuleProblem& problem) noexcept {
  const int64_t finest =
      problem.rows.N * problem.HV * round_up(problem.V, kColumnStep) / kColumnStep;
  return static_cast<int>(std::min<int64_t>(worker_count(), std::max<int64_t>(finest, 1)));
}

/// Sequences in order of length, longest first; returns how many sequences of the greatest length
/// the batch amounts to, at least 1.
int64_t order_sequences(const core::Rows& rows, int64_t* order) noexcept {
  int64_t longest = 1, total = 0;
  for (int64_t n = 0; n < rows.N; ++n) {
    const int64_t tokens = core::token_range(rows, n).size();
    order[n] = n;
    longest = std::max(longest, tokens);
    total += tokens;
  }
  if (core::present(rows.cu_seqlens)) {
    std::sort(order, order + rows.N, [&rows](int64_t a, int64_t b) {
      const int64_t a_tokens = core::token_range(rows, a).size();
      const int64_t b_tokens = core::token_range(rows, b).size();
      return a_tokens != b_tokens ? a_tokens > b_tokens : a < b;
    });
  }
  return std::max<int64_t>(total / longest, 1);
}

}  // namespace

size_t chunk_forward_workspace(const core::DeltaRuleProblem& problem) noexcept {
  const ChunkMemory memory(problem, widest_cut(problem));
  const int64_t scratch = workers_for(problem) * memory.scratch.size;
  return static_cast<size_t>(memory.order_bytes) + static_cast<size_t>(scratch) * sizeof(float);
}

void chunk_forward(const core::DeltaRuleProblem& problem, void* workspace) noexcept {
  const core::Rows& rows = problem.rows;
  if (rows.N == 0) return;
  int64_t* const order = static_cast<int64_t*>(workspace);
  const int64_t balance = order_sequences(rows, order);
  const ChunkCut cut(problem, balance, worker_count());
  const ChunkMemory memory(problem, cut);
  std::byte* const base = static_cast<std::byte*>(workspace) + memory.order_bytes;
  float* const scratch = reinterpret_cast<float*>(base);
  const int64_t key_groups = cut.key_groups(problem.H);
  const int64_t head_groups = cut.head_groups(problem.r);
  const int64_t column_groups = cut.column_groups(problem.V);

  auto body = [&](int64_t index, int worker) noexcept {
    const int64_t column_group = index % column_groups;
    const int64_t head_group = index / column_groups % head_groups;
    const int64_t key_group = index / column_groups / head_groups % key_groups;
    const int64_t first_key_head = key_group * cut.key_heads;
    const int64_t first_head = head_group * cut.heads;
    const int64_t first_column = column_group * cut.columns;
    const ChunkItem item{problem,
                         memory.scratch,
                         scratch + worker * memory.scratch.size,
                         order[index / column_groups / head_groups / key_groups],
                         first_key_head,
                         std::min(cut.key_heads, problem.H - first_key_head),
                         first_head,
                         std::min(cut.heads, problem.r - first_head),
                         first_column,
                         std::min(cut.columns, problem.V - first_column)};
    HWY_DYNAMIC_DISPATCH(chunk_item)(item);
  };
  parallel_for(rows.N * key_groups * head_groups * column_groups, workers_for(problem), body);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
