// Tells how chunk_forward cuts its work into items, and where an item's scratch memory lies. One
// plan serves the size query and the run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_PLAN_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_PLAN_HPP_

#include <algorithm>
#include <cstdint>

#include "core/problem.hpp"
#include "cpu/kernels/size_limits.hpp"

namespace sluice::cpu {

/// Tokens per chunk. A divisor of 64, so that chunks end where checkpoints do.
/// PERF more tokens cost more in the triangles, fewer in state traffic: 16 and 32 are level.
constexpr int64_t kChunk = 16;

/// Columns of the widest tile of any instruction set; narrower ones divide it.
constexpr int64_t kColumnStep = 32;

/// Bytes of state that the value heads of one key head may have: half of a 1 MiB L2.
constexpr int64_t kHeadStateBytes = int64_t{512} << 10;

/// Bytes of state that one item may carry, in all its key heads.
constexpr int64_t kItemStateBytes = int64_t{4} << 20;

/// Tokens for which an item stays with one key head before it turns to the next.
constexpr int64_t kBlock = 64;
static_assert(kBlock % kChunk == 0);

/// Offsets of one worker's scratch, in floats; every array starts on a cache line.
/// Matrices over tokens are [kChunk][kChunk]; "t" arrays are transposed to [K][kChunk].
struct ChunkScratch {
  int64_t K_rows = 0;     ///< K up to whole vectors: the stride of k_rows and q_rows
  int64_t V_columns = 0;  ///< an item's columns up to whole tiles: the stride of x and o
  int64_t k_rows = 0, q_rows = 0, k_t = 0, q_t = 0;
  int64_t kk = 0, qk = 0;  ///< products of a key head
  int64_t k_factor = 0, q_factor = 0;
  int64_t A = 0, P = 0;  ///< matrices of a value head
  int64_t x = 0, o = 0, xe = 0;
  bool key_wise = false;  ///< of the next four, and no kk and qk
  int64_t alpha = 0, decayed_q = 0, decayed_k = 0, written_k = 0;
  int64_t decay = 0;          ///< [K_rows]: exp(G_n)
  bool pairs = false;         ///< panels and rows are those of chunk_pairs.hpp
  int64_t state = 0;          ///< per value head of the item: panels of some columns
  int64_t column_floats = 0;  ///< of a panel
  int64_t state_head = 0;     ///< floats of one head's state
  int64_t size = 0;

  ChunkScratch(int64_t K, int64_t columns, int64_t heads, bool by_key, bool in_pairs) noexcept
      : K_rows(round_up(K, kFloatsPerLine)),
        V_columns(round_up(columns, kColumnStep)),
        key_wise(by_key),
        pairs(in_pairs),
        column_floats(in_pairs ? K / 2 * 3 : K_rows) {
    const auto take = [this](int64_t floats) {
      const int64_t first = size;
      size += round_up(floats, kFloatsPerLine);
      return first;
    };
    k_rows = take(kChunk * K_rows);
    q_rows = take(kChunk * K_rows);
    k_t = take(kChunk * K_rows);
    q_t = take(kChunk * K_rows);
    kk = take(kChunk * kChunk);
    qk = take(kChunk * kChunk);
    A = take(kChunk * kChunk);
    P = take(kChunk * kChunk);
    x = take(kChunk * V_columns);
    o = take(kChunk * V_columns);
    xe = take(kChunk * kColumnStep);
    for (int64_t* rows : {&alpha, &decayed_q, &decayed_k, &written_k}) {
      *rows = take(by_key ? kChunk * K_rows : 0);
    }
    decay = take(K_rows);
    k_factor = take(kChunk);
    q_factor = take(kChunk);
    state_head = column_floats * V_columns;
    state = take(heads * state_head);
  }
};

constexpr int64_t quotient_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }

/// The cut of a sequence into items: groups of key heads, or of one key head's value heads, or
/// ranges of columns of one value head.
struct ChunkCut {
  int64_t key_heads = 1;  ///< per item; above 1 an item has all value heads and columns of each
  int64_t heads = 1;      ///< value heads per key head and item
  int64_t columns = 1;    ///< columns per item, a multiple of kColumnStep

  int64_t key_groups(int64_t H) const noexcept { return quotient_up(H, key_heads); }
  int64_t head_groups(int64_t r) const noexcept { return quotient_up(r, heads); }
  int64_t column_groups(int64_t V) const noexcept { return quotient_up(V, columns); }

  /// Halves items until there are enough for `workers`, or they are one tile wide. `balance` is how
  /// many equal sequences the batch amounts to. Finer cuts repeat the products of q and k.
  ChunkCut(const core::DeltaRuleProblem& problem, int64_t balance, int64_t workers) noexcept {
    const int64_t K = round_up(problem.K, kFloatsPerLine);
    columns = round_up(problem.V, kColumnStep);
    const int64_t head_bytes = K * columns * static_cast<int64_t>(sizeof(float));
    heads = std::clamp<int64_t>(kHeadStateBytes / head_bytes, 1, problem.r);
    // WHY 3: items are drawn by whoever is free; a third of a share is the most a worker waits.
    const int64_t wanted = workers > 1 ? 3 * workers : 1;
    if (heads == problem.r) {
      const int64_t most =
          std::min(kItemStateBytes / (heads * head_bytes), balance * problem.H / wanted);
      const int64_t groups = quotient_up(problem.H, std::clamp<int64_t>(most, 1, problem.H));
      key_heads = quotient_up(problem.H, groups);  // groups of one size, not full ones and a rest
    }
    if (key_heads > 1) return;
    while (balance * problem.H * head_groups(problem.r) * column_groups(problem.V) < wanted) {
      if (heads > 1) {
        heads = (heads + 1) / 2;
      } else if (columns > kColumnStep) {
        columns = round_up((columns + 1) / 2, kColumnStep);
      } else {
        break;
      }
    }
  }
};

/// One item: `heads` value heads of each of some key heads in sequence n, some columns of their
/// states.
struct ChunkItem {
  const core::DeltaRuleProblem& problem;
  const ChunkScratch& plan;
  float* scratch;
  int64_t n;
  int64_t first_key_head, key_heads;
  int64_t first_head;  ///< index among a key head's r value heads
  int64_t heads;
  int64_t first_column, columns;

  /// Value head `index` of the item among those of `key_head`.
  int64_t value_head(int64_t key_head, int64_t index) const noexcept {
    const int64_t j = first_head + index;
    return problem.head_map == SLUICE_HEAD_MAP_BLOCK ? key_head * problem.r + j
                                                     : j * problem.H + key_head;
  }
};

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CHUNK_PLAN_HPP_
