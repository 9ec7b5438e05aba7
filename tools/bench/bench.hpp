// Declares the subcommands of `sluice bench`, in the form of commands.hpp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_BENCH_HPP_
#define SLUICE_TOOLS_BENCH_BENCH_HPP_

#include <string>

#include "tools/bench/machine.hpp"
#include "tools/commands.hpp"

namespace sluice::tools {

constexpr int kWarmUps = 2;     // calls before the first measured one
constexpr int kHostCalls = 31;  // calls whose host time is measured

Action add_bench_backward(CLI::App& bench);
Action add_bench_cpu(CLI::App& bench);
Action add_bench_decode(CLI::App& bench);
Action add_bench_kda(CLI::App& bench);
Action add_bench_layer(CLI::App& bench);
Action add_bench_prefill(CLI::App& bench);
Action add_bench_parts(CLI::App& bench);
Action add_bench_stages(CLI::App& bench);
Action add_bench_train_layer(CLI::App& bench);

/// Adds --dtype, --repeat, --commit and --json.
void add_run_options(CLI::App& command, RunOptions* options);
/// Adds --repeat (of what `what` says), --commit and --json.
void add_record_options(CLI::App& command, const char* what, RunOptions* options);
/// What was typed, without --json: for the record of the run.
std::string command_text(const std::string& name, const CLI::App& command);

/// Adds --backend of benchmarks that run on one device: cuda (the first GPU; the default) or cpu.
void add_device_option(CLI::App& command, Implementation* out);

/// Writes what was measured where the user asked for it; an empty path asks for nothing. Returns
/// `status`, or kExitError behind a message that names a file that cannot be written.
int write_record(const std::string& path, const std::string& text, int status);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_BENCH_HPP_
