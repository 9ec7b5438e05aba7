// Makes what `sluice bench stages` times: the stages of a prefill on memory of their own, the chain
// of them, the one-launch prefill on the same inputs, and what each costs at least.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_STAGES_WORK_HPP_
#define SLUICE_TOOLS_BENCH_STAGES_WORK_HPP_

#include <memory>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {

/// One shape. Chains have all stages and the one-launch prefill; others only simple GLA.
struct StagesCell {
  bool chain = true, packed = false, head_first = false;
  int64_t B = 1, T = 0;  ///< packed: B sequences of T tokens in one batch entry
  int64_t H = 16, HV = 16, K = 128, V = 128, C = 64;

  int64_t tokens() const noexcept { return B * T; }
  int64_t chunks() const noexcept { return B * ((T + C - 1) / C); }
  /// "1x32768", "16x16384 packed", "24x6144 head first".
  std::string text() const;
};

/// Work that is timed on its own.
enum class StagesItem {
  kCumsum,
  kKkt,
  kSolve,
  kWy,
  kStates,
  kOutputs,
  kCumsumKkt,   ///< the first two in one
  kSolveWy,     ///< the next two in one, the inverse on chip
  kSimpleGla,   ///< one call, states inside
  kGlaStates,   ///< chunk_h of simple GLA
  kGlaOutputs,  ///< chunk_o of simple GLA on those states
  kOneLaunch,   ///< chunk_forward
};
const char* item_name(StagesItem item) noexcept;
/// What a cell has, in order.
std::vector<StagesItem> items_of(const StagesCell& cell);

/// FLOP, triangles counted half, and bytes read and written once: docs/kernels/stages.md.
struct StagesCost {
  double flops = 0, bytes = 0;
};
StagesCost cost_of(const StagesCell& cell, StagesItem item) noexcept;

/// The tensors of a run's largest cell, and calls on the front of them.
class StagesWork {
 public:
  /// Failures throw std::runtime_error.
  StagesWork(Machine& machine, sluice_dtype dtype, const std::vector<StagesCell>& cells);
  void select(const StagesCell& cell);
  /// Enqueues on a stream of the machine; null: the default one.
  void call(StagesItem item, void* stream = nullptr);
  /// All stages of the cell's chain, or pairs in place of the first four.
  void call_chain(bool pairs, void* stream = nullptr);
  /// ||chain - one launch|| / ||one launch|| of o, and of the final states, after both ran; of o of many
  /// tokens in windows over all of it.
  double difference() const;
  double final_difference() const;

 private:
  TensorView rows(int tensor, int64_t heads, int64_t columns) const;
  TensorView numbers(int tensor) const;
  void fill_inputs();
  double difference(const TensorView& a, const TensorView& b, int64_t count) const;

  Machine& machine_;
  DType dtype_;
  StagesCell cell_;
  std::vector<size_t> bytes_;  ///< of each tensor, at most
  std::vector<std::shared_ptr<void>> memory_;
  std::shared_ptr<void> offsets_;
  WorkScratch scratch_;
  ChunkStageArgs stage_, gla_;
  ChunkForwardArgs one_launch_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_STAGES_WORK_HPP_
