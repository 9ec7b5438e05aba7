// Declares the subcommands. Each adds itself to the command line and returns what runs it; that in
// turn returns the exit status: 0 done and right, 1 a result is wrong, 2 it could not be done, 3
// the backend cannot run here or does not support a case.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_COMMANDS_HPP_
#define SLUICE_TOOLS_COMMANDS_HPP_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::tools {

constexpr int kExitDone = 0, kExitWrong = 1, kExitError = 2, kExitUnavailable = 3;

using Action = std::function<int()>;

Action add_doctor(CLI::App& app);
Action add_info(CLI::App& app);
Action add_run(CLI::App& app);
Action add_make_case(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_verify(CLI::App& app);

/// Prints "sluice: message" to stderr and returns kExitError.
int fail(const std::string& message);
/// The same, returning kExitUnavailable.
int fail_unavailable(const std::string& message);

/// Adds an option of values that `check` lets through; its help shows the default.
template <class Value>
CLI::Option* add_checked(CLI::App& command, const char* name, Value* value, const std::string& help,
                         const CLI::Validator& check) {
  return command.add_option(name, *value, help)->check(check)->capture_default_str();
}
/// Adds an option of several values with commas between them.
template <class Value>
CLI::Option* add_list(CLI::App& command, const char* name, std::vector<Value>* values,
                      const std::string& help) {
  return command.add_option(name, *values, help)->delimiter(',');
}

/// Adds --backend, which takes the names of sluice_implementations() and "auto".
void add_backend_option(CLI::App& command, Implementation* out);
/// Adds --dtype, or an option of another name: f32, bf16, f16 (also fp32, fp16). The default is what
/// *out holds.
void add_dtype_option(CLI::App& command, sluice_dtype* out, const std::string& name = "--dtype",
                      const std::string& help = "round the inputs to f32, bf16 or f16 first");

/// Empty if that implementation can run here, else why not.
std::string unavailable(Implementation implementation);
/// The device that it computes on: the first GPU, or the host.
sluice_device device_of(Implementation implementation);
/// The name as --backend takes it.
const char* backend_name(Implementation implementation);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_COMMANDS_HPP_
