// Times contenders in turns and keeps medians of paired runs.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "check/comparer.hpp"
#include "tools/bench/cpu_probe.hpp"

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;

double sample_error(const BenchProblem& problem, const Contender& contender) {
  if (!contender.comparable()) return std::numeric_limits<double>::quiet_NaN();
  const check::Array answer =
      sample_answer(problem, contender.head_map(), contender.state_layout());
  if (answer.empty()) return std::numeric_limits<double>::quiet_NaN();
  const TensorView sample = contender.output().sliced(0, 0, 1).sliced(1, 0, answer.shape[1]);
  const check::Comparison comparison = check::compare_tokens(sample, check::view_of(answer));
  return comparison.fault.empty() ? comparison.relative_l2
                                  : std::numeric_limits<double>::quiet_NaN();
}

struct Samples {
  std::vector<double> wall, cpu;
};

// Runs one contender for a while; false if it failed.
bool run_turn(Contender& contender, double seconds, Measurement* out, Samples* samples) {
  const auto start = Clock::now();
  const double cpu = process_seconds();
  int calls = 0;
  double elapsed = 0;
  do {
    out->failure = contender.run();
    if (!out->failure.empty()) return false;
    ++calls;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  samples->wall.push_back(elapsed / calls);
  samples->cpu.push_back((process_seconds() - cpu) / calls);
  contender.rest();
  return true;
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t last = samples.size() - 1;
  return {samples[samples.size() / 2], samples[last / 4], samples[last - last / 4]};
}

std::vector<Measurement> measure(const BenchProblem& problem,
                                 const std::vector<std::unique_ptr<Contender>>& contenders,
                                 const MeasureOptions& options,
                                 const std::function<void()>& beside) {
  std::vector<Measurement> results(contenders.size());
  std::vector<Samples> samples(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) {
    results[i].name = contenders[i]->name();
    results[i].state_number_bytes = contenders[i]->state_number_bytes();
    results[i].failure = contenders[i]->run();
    if (results[i].failure.empty()) results[i].error = sample_error(problem, *contenders[i]);
    results[i].scratch_bytes = contenders[i]->scratch_bytes();
    contenders[i]->rest();
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (!results[i].failure.empty()) continue;
      run_turn(*contenders[i], options.seconds, &results[i], &samples[i]);
    }
    beside();
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    results[i].wall = spread_of(samples[i].wall);
    results[i].cpu = spread_of(samples[i].cpu);
  }
  return results;
}

}  // namespace sluice::tools
