// Declares what `sluice bench decode` and `sluice bench layer` are asked for, and the measurement.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_STEP_MEASURE_HPP_
#define SLUICE_TOOLS_BENCH_STEP_MEASURE_HPP_

#include "tools/bench/machine.hpp"
#include "tools/bench/step_report.hpp"

namespace sluice::tools {

struct StepSettings {
  bool layer = false;
  std::string grid = "marks", commit = "unknown", command, json;
  std::vector<int64_t> HV, B, T;
  std::vector<std::string> states;
  int64_t H = 0, K = 128, V = 128;
  bool per_token = false, key_gates = false;
  int64_t ring = 0;
  std::string entry = "fp32";
  int repeat = 50;
};

/// Times the cells asked for on a GPU that is warm, with a progress bar.
StepReport measure_steps(Machine& machine, const StepSettings& settings);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_STEP_MEASURE_HPP_
