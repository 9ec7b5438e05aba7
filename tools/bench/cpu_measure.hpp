// Times contenders in turns, so that what disturbs the machine disturbs all of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CPU_MEASURE_HPP_
#define SLUICE_TOOLS_BENCH_CPU_MEASURE_HPP_

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {

/// Seconds per call: the median over rounds, and the middle half's ends.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> samples);

struct Measurement {
  std::string name, failure;  ///< failure: what run() said, or empty
  Spread wall, cpu;           ///< cpu: of the whole process
  int64_t state_number_bytes = 4;
  size_t scratch_bytes = 0;
  double error = 0;  ///< relative L2 of the sample against the reference, NaN if not comparable
};

struct MeasureOptions {
  int rounds = 9;
  double seconds = 0.05;  ///< at least, of each contender in each round
};

/// First each contender once for its error (and to warm up), then rounds in which each runs for a
/// while in turn, then `beside()` for the probes.
std::vector<Measurement> measure(const BenchProblem& problem,
                                 const std::vector<std::unique_ptr<Contender>>& contenders,
                                 const MeasureOptions& options,
                                 const std::function<void()>& beside);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CPU_MEASURE_HPP_
