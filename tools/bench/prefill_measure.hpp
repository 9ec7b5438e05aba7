// Runs prefill cells: times first, with nothing else going on, errors afterwards.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PREFILL_MEASURE_HPP_
#define SLUICE_TOOLS_BENCH_PREFILL_MEASURE_HPP_

#include "tools/bench/machine.hpp"
#include "tools/bench/prefill_problem.hpp"
#include "tools/bench/prefill_report.hpp"

namespace sluice::tools {

/// Runs all cells on a machine whose start took start_seconds, with a progress bar.
PrefillReport measure_prefill(Machine& machine, double start_seconds,
                              const PrefillSettings& settings);

/// A sequence and value head whose results are compared with the reference.
struct Sample {
  int64_t sequence = 0, head = 0;
};
/// First, last and one random head of the longest sequence, a random one of the shortest (of the
/// last sequence where all are as long).
std::vector<Sample> samples_of(const Cell& cell);

/// Sets the errors of all rows without a failure: calls each cell once more on poisoned outputs and
/// compares samples with the float64 reference, on all threads of the host.
void measure_errors(Machine& machine, const PrefillInputs& inputs, History history,
                    PrefillProblem* problem, std::vector<PrefillRow>* rows);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PREFILL_MEASURE_HPP_
