// sluice bench: chooses what to time.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.hpp"

namespace sluice::tools {

Action add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Time the operators");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  sluice bench cpu --model qwen3-next --T 512,2048\n"
      "  sluice bench prefill --grid marks --json marks.json --svg marks.svg");
  const Action cpu = add_bench_cpu(*command), prefill = add_bench_prefill(*command);
  return [command, cpu, prefill] { return command->got_subcommand("cpu") ? cpu() : prefill(); };
}

}  // namespace sluice::tools
