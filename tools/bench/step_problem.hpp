// Makes the calls of a step: tensors on a machine, and a pool large enough that every launch of a
// round finds its states cold.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_STEP_PROBLEM_HPP_
#define SLUICE_TOOLS_BENCH_STEP_PROBLEM_HPP_

#include <vector>

#include "tools/bench/step_report.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {

class StepProblem {
 public:
  StepProblem(Machine& machine, const StepCell& cell);

  /// Launches of a round: each has B slots (times T with per_token) of its own.
  int64_t launches() const { return launches_; }
  /// Call `launch` of a round, enqueued; throws std::runtime_error if it is refused.
  void call(int64_t launch, void* stream);
  /// Whether the library has a kernel for it, and its name.
  Status supported(std::string* kernel) const;
  /// Empty, or what is wrong with the output of the last call, after synchronize().
  std::string trouble() const;

 private:
  TensorView states();
  void make_slots();
  void make_step();
  void make_layer();
  void make_ring(ReplayRing* ring);
  void take_cursors(int64_t launch, ReplayRing* ring) const;

  WorkMemory memory_;
  StepCell cell_;
  int64_t launches_ = 1, slots_ = 0;
  WorkScratch scratch_;
  TensorView slot_table_{};  ///< [launches * B] or [launches * B, T]
  TensorView accepted_{};
  TensorView position_{}, checkpoint_{};  ///< [launches * B]
  RecurrentStepArgs step_;
  LayerArgs layer_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_STEP_PROBLEM_HPP_
