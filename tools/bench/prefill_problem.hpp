// Makes a call of a prefill cell: the random inputs of a run, one pool for all of its cells, on the
// host and on a machine, and the views a cell takes of the front of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PREFILL_PROBLEM_HPP_
#define SLUICE_TOOLS_BENCH_PREFILL_PROBLEM_HPP_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/cell.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {

/// Host copies: unit q and k rows, normal v, write strengths, states 0.1 normal; gates by HV.
struct PrefillInputs {
  /// Large enough for each of the cells, which share K and V.
  PrefillInputs(const std::vector<Cell>& cells, sluice_dtype dtype, const std::string& gates,
                sluice_dtype gate_dtype = kFloat32);

  sluice_dtype dtype, gate_dtype;  ///< gate_dtype: of gates and write strengths
  QkNorm norm = QkNorm::kNone;     ///< that calls take of q and k, which are unit already
  Bytes q, k, v, beta, initial;
  std::map<int64_t, Bytes> gates;
};

/// Inputs, outputs and scratch on a machine, for one cell at a time.
class PrefillProblem {
 public:
  /// `lengths_known`: calls are told the longest sequence.
  PrefillProblem(Machine& machine, const PrefillInputs& inputs, const std::vector<Cell>& cells,
                 bool lengths_known);

  /// Points the arguments at a cell. kUnsupported where the backend has no kernel for it.
  Status select(const Cell& cell, const SplitWay& way, History history);
  /// The arguments of the cell selected.
  const ChunkForwardArgs& args() const noexcept { return args_; }
  /// Segments of the last call, which the planner leaves in the workspace; 0 without a planner.
  int64_t planned_segments() const;
  /// One call of the cell selected, enqueued; throws std::runtime_error if it is refused.
  void call();
  /// NaN in o and the final states.
  void poison();
  /// o [length, V] and final state [K, V] of one sequence and value head, after synchronize().
  std::vector<std::byte> output(int64_t sequence, int64_t head) const;
  std::vector<float> final_state(int64_t sequence, int64_t head) const;

 private:
  Machine& machine_;
  bool lengths_known_;
  sluice_dtype dtype_, gate_dtype_;
  QkNorm norm_;
  Cell cell_;
  std::shared_ptr<void> q_, k_, v_, beta_, initial_, o_, final_, cu_seqlens_;
  size_t o_bytes_ = 0, final_bytes_ = 0;
  std::map<int64_t, std::shared_ptr<void>> gates_;
  ChunkForwardArgs args_;
  WorkScratch scratch_;
};

/// First row of each sequence, and the end of the last one.
std::vector<int32_t> offsets_of(const Cell& cell);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PREFILL_PROBLEM_HPP_
