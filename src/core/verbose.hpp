// Logs calls to stderr, one line each, where SLUICE_VERBOSE=1 asks for it. docs/environment.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_VERBOSE_HPP_
#define SLUICE_CORE_VERBOSE_HPP_

#include <chrono>

#include "core/backend.hpp"

namespace sluice::core {

/// Whether calls are to be logged; asked of the environment once.
bool verbose() noexcept;

/// One call that ran. On a GPU its time is the host's, for the kernels run on.
struct LoggedCall {
  const char* op;
  KernelName kernel;
  const Backend* backend;
  const char* chosen_by;  ///< "device", "SLUICE_IMPL" or "argument"
  sluice_device device;
  std::chrono::steady_clock::time_point begin;
};

void log_call(const LoggedCall& call, const DeltaRuleProblem& problem) noexcept;
void log_call(const LoggedCall& call, const StateFoldProblem& problem) noexcept;
void log_call(const LoggedCall& call, const ChunkStageProblem& problem) noexcept;
void log_call(const LoggedCall& call, const CausalConvProblem& problem) noexcept;
void log_call(const LoggedCall& call, const GatedNormProblem& problem) noexcept;
void log_call(const LoggedCall& call, const LayerBackwardProblem& problem) noexcept;
void log_call(const LoggedCall& call, const LayerProblem& problem) noexcept;
/// What belongs to a forward call has its sizes and types.
template <class Problem>
void log_call(const LoggedCall& call, const Problem& problem) noexcept {
  log_call(call, problem.forward);
}

/// A call that was refused, or failed.
void log_failure(const Status& status) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_VERBOSE_HPP_
