// Declares the command-line tool as a function, which its executable and the Python wheel call.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_RUN_TOOL_HPP_
#define SLUICE_TOOLS_RUN_TOOL_HPP_

namespace sluice::tools {

/// Runs the command and returns the exit status; argv as main() has it.
int run_tool(int argc, char** argv);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_RUN_TOOL_HPP_
