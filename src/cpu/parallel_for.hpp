// Declares the CPU backend's threads: a small pool behind parallel_for(), replaceable by the
// caller's own.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_PARALLEL_FOR_HPP_
#define SLUICE_CPU_PARALLEL_FOR_HPP_

#include <cstdint>

#include "sluice/sluice.h"
#include "sluice/status.hpp"

namespace sluice::cpu {

/// Most workers that may run at once: SLUICE_NUM_THREADS, else the CPUs that affinity and the
/// container's quota leave to this process, or what the caller's executor was declared with. Workspaces are sized by it.
int worker_count() noexcept;

/// Whether SLUICE_NUM_THREADS is unset, empty or a number from 1 to 4096.
Status threads_request() noexcept;

/// Starts the pool now. Otherwise the first parallel_for() with more than one worker does.
Status start_workers() noexcept;

/// See sluice_set_executor().
Status set_executor(sluice_parallel_for function, void* user, int threads) noexcept;

/// A call of an operator, in its scope: set_executor() refuses meanwhile.
class RunningCall {
 public:
  RunningCall() noexcept;
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;
  /// Whether the caller's executor threw in it, so that items are missing.
  [[nodiscard]] bool lost_items() const noexcept;
};

/// Runs body(context, item, worker) once for each item in [0, items) and returns when all are done.
/// worker < min(workers, items) names scratch memory: two calls that overlap in time have different
/// workers. Items go to workers in ascending order, whoever is free (so order the longest first);
/// an item's result must not depend on its worker, which makes results independent of thread
/// counts.
void parallel_for(int64_t items, int workers, void (*body)(void* context, int64_t item, int worker),
                  void* context) noexcept;

/// The same for a callable.
template <class Body>
void parallel_for(int64_t items, int workers, Body& body) noexcept {
  parallel_for(
      items, workers,
      [](void* context, int64_t item, int worker) { (*static_cast<Body*>(context))(item, worker); },
      &body);
}

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_PARALLEL_FOR_HPP_
