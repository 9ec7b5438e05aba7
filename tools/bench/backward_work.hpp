// Makes what `sluice bench backward` times: chunk_backward and the chunk_forward that it belongs
// to, on the same inputs, with what gradients cost token by token.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_BACKWARD_WORK_HPP_
#define SLUICE_TOOLS_BENCH_BACKWARD_WORK_HPP_

#include <memory>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/prefill_problem.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {

/// FLOP of the recurrence of gradients (ops/manifest.json): 22 K V a token and value head.
double backward_flops(const Cell& cell) noexcept;
/// Bytes read and written once: q, k, v, d_o and three gradients in elements of `element_bytes`;
/// gates, write strengths, their gradients and three states in float32.
double backward_bytes(const Cell& cell, int64_t element_bytes) noexcept;

/// Both calls of one cell at a time, with the l2 norm inside. Failures throw std::runtime_error.
class BackwardWork {
 public:
  /// `inputs` and `cells` as for PrefillProblem. unaligned: all rows of chunk_backward begin one element
  /// past a multiple of 16 bytes, so that those are copied which its kernels want aligned.
  BackwardWork(Machine& machine, const PrefillInputs& inputs, const std::vector<Cell>& cells,
               Implementation backend, bool unaligned = false);
  /// `way`: of chunk_backward; chunk_forward chooses by itself.
  void select(const Cell& cell, const SplitWay& way);
  /// Enqueue on the default stream.
  void forward();
  void backward();
  size_t workspace_bytes() const noexcept { return backward_size_; }

 private:
  Machine& machine_;
  PrefillProblem problem_;
  Implementation backend_;
  size_t shift_;                     ///< bytes of rows' memory in front of the first
  std::shared_ptr<void> q_, k_, v_;  ///< null: those of problem_
  std::shared_ptr<void> d_o_, d_final_, dq_, dk_, dv_, dgate_, dbeta_, dinitial_;
  WorkScratch scratch_;
  size_t backward_size_ = 0;
  ChunkForwardArgs forward_;
  ChunkBackwardArgs backward_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_BACKWARD_WORK_HPP_
