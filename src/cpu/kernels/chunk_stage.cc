// Runs chunk_stage: cuts a stage into items of chunks and heads, or of sequences and columns.
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/chunk_stage.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "cpu/kernels/chunk_stage-inl.h"
#include "cpu/kernels/chunk_stage_states-inl.h"
#include "cpu/kernels/operators.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

void stage_of_chunk(const StageChunkItem& item) { ChunkStage(item).run(); }
void stage_of_sequence(const StageSequenceItem& item) { SequenceStage(item).run(); }

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

HWY_EXPORT(stage_of_chunk);
HWY_EXPORT(stage_of_sequence);

using core::ChunkStageProblem;

/// Whether chunks hand a state on.
bool carries_state(const ChunkStageProblem& p) noexcept {
  return p.stage == SLUICE_STAGE_CHUNK_H ||
         (p.stage == SLUICE_STAGE_CHUNK_O && !core::present(p.h));
}

/// Items of one chunk.
int64_t lanes(const ChunkStageProblem& p) noexcept {
  if (p.stage == SLUICE_STAGE_CHUNK_CUMSUM) return 1;
  return p.stage == SLUICE_STAGE_SOLVE_TRIL ? p.HV : p.H;
}

/// Most chunks that any content of cu_seqlens makes.
int64_t most_chunks(const ChunkStageProblem& p) noexcept {
  const int64_t packed = core::present(p.rows.cu_seqlens) ? p.rows.N : 0;
  return p.rows.B * core::chunk_count(p.rows.T, p.C) + packed;
}

/// Columns of an item: all, or fewer where there are fewer heads than two a thread.
int64_t item_columns(const ChunkStageProblem& p) noexcept {
  if (!carries_state(p)) return p.V;
  const int64_t heads = std::max<int64_t>(p.rows.N * p.HV, 1);
  const int64_t pieces = (2 * worker_count() + heads - 1) / heads;
  return std::min(p.V, round_up((p.V + pieces - 1) / pieces, kStageColumns));
}

/// PERF: below this many elements (about 20 us) waking threads costs more than they save.
constexpr int64_t kWorthThreads = 32768;

int64_t most_items(const ChunkStageProblem& p) noexcept {
  if (!carries_state(p)) return most_chunks(p) * lanes(p);
  const int64_t columns = item_columns(p);
  return p.rows.N * p.HV * ((p.V + columns - 1) / columns);
}

int workers_for(const ChunkStageProblem& p) noexcept {
  if (p.rows.B * p.rows.T * p.HV * std::max<int64_t>(p.K + p.V, 1) < kWorthThreads) return 1;
  return static_cast<int>(std::min<int64_t>(worker_count(), std::max<int64_t>(most_items(p), 1)));
}

/// Places of chunks in a call: where each sequence's chunks start, and of packed ones each chunk's
/// tokens.
class ChunkTable {
 public:
  static int64_t bytes(const ChunkStageProblem& p) noexcept {
    const int64_t places = p.rows.N + 1 + 2 * most_chunks(p);
    return round_up(places * static_cast<int64_t>(sizeof(int64_t)), 64);
  }

  ChunkTable(const ChunkStageProblem& p, void* memory) noexcept
      : p_(p), first_(static_cast<int64_t*>(memory)), begin_(first_ + p.rows.N + 1) {
    const bool packed = core::present(p.rows.cu_seqlens);
    for (int64_t n = 0; n < p.rows.N; ++n) {
      const core::TokenRange range = core::token_range(p.rows, n);
      first_[n] = packed ? count_ : 0;
      for (int64_t t = range.begin; t < range.end; t += p.C) {
        begin_[2 * count_] = packed ? t : n * p.rows.T + t;
        begin_[2 * count_ + 1] = std::min(t + p.C, range.end) - t;
        ++count_;
      }
    }
  }

  int64_t count() const noexcept { return count_; }
  int64_t first_entry(int64_t n) const noexcept { return first_[n]; }
  StageChunk chunk(int64_t index) const noexcept {
    const int64_t row = begin_[2 * index], tokens = begin_[2 * index + 1];
    if (core::present(p_.rows.cu_seqlens)) return {{0, row, row + tokens}, 0, index};
    const int64_t batch = row / p_.rows.T, begin = row % p_.rows.T;
    return {{batch, begin, begin + tokens}, batch, begin / p_.C};
  }

 private:
  const ChunkStageProblem& p_;
  int64_t* first_;
  int64_t* begin_;  ///< first token and tokens of each chunk, in pairs
  int64_t count_ = 0;
};

void run_chunks(const ChunkStageProblem& p, const ChunkTable& table, const StageScratch& layout,
                float* scratch) noexcept {
  const int64_t each = lanes(p);
  auto body = [&](int64_t index, int worker) noexcept {
    const StageChunkItem item{p, layout, scratch + worker * layout.size, table.chunk(index / each),
                              index % each};
    HWY_DYNAMIC_DISPATCH(stage_of_chunk)(item);
  };
  parallel_for(table.count() * each, workers_for(p), body);
}

void run_sequences(const ChunkStageProblem& p, const ChunkTable& table, const StageScratch& layout,
                   int64_t columns, float* scratch) noexcept {
  const int64_t pieces = (p.V + columns - 1) / columns;
  auto body = [&](int64_t index, int worker) noexcept {
    const int64_t n = index / pieces / p.HV, first = index % pieces * columns;
    const StageSequenceItem item{p,
                                 layout,
                                 scratch + worker * layout.size,
                                 n,
                                 table.first_entry(n),
                                 index / pieces % p.HV,
                                 first,
                                 std::min(columns, p.V - first)};
    HWY_DYNAMIC_DISPATCH(stage_of_sequence)(item);
  };
  parallel_for(p.rows.N * p.HV * pieces, workers_for(p), body);
}

}  // namespace

size_t chunk_stage_workspace(const ChunkStageProblem& p) noexcept {
  const StageScratch layout(p, item_columns(p));
  const int64_t scratch = workers_for(p) * layout.size * static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(ChunkTable::bytes(p) + scratch);
}

void chunk_stage(const ChunkStageProblem& p, void* workspace) noexcept {
  const ChunkTable table(p, workspace);
  const int64_t columns = item_columns(p);
  const StageScratch layout(p, columns);
  auto* const base = static_cast<std::byte*>(workspace) + ChunkTable::bytes(p);
  float* const scratch = reinterpret_cast<float*>(base);
  if (carries_state(p)) {
    run_sequences(p, table, layout, columns, scratch);
  } else {
    run_chunks(p, table, layout, scratch);
  }
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
