// Reads the command line of sluice and runs the command that it names.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tools/commands.hpp"
#include "tools/run_tool.hpp"

namespace {

using Actions = std::vector<std::pair<const char*, sluice::tools::Action>>;

bool is_command(const Actions& actions, const std::string& name) {
  return std::any_of(actions.begin(), actions.end(),
                     [&](const auto& action) { return name == action.first; });
}

}  // namespace

int sluice::tools::run_tool(int argc, char** argv) {
  namespace tools = sluice::tools;
  try {
    CLI::App app("Sluice: gated linear attention on CPUs and GPUs", "sluice");
    app.set_version_flag("--version", sluice_version());
    app.footer(
        "Examples:\n"
        "  sluice doctor\n"
        "  sluice run examples/data/qwen3_next_layer.safetensors\n"
        "  sluice verify --backend cpu tests/golden/hf_prefill.safetensors\n"
        "  sluice COMMAND --help\n"
        "Exit status: 0 done and right, 1 a result is wrong, 2 it could not be done,\n"
        "3 the backend cannot run here or does not support a case.");
    Actions actions;
    actions.emplace_back("doctor", tools::add_doctor(app));
    actions.emplace_back("info", tools::add_info(app));
    actions.emplace_back("run", tools::add_run(app));
    actions.emplace_back("verify", tools::add_verify(app));
    actions.emplace_back("make-case", tools::add_make_case(app));
    actions.emplace_back("bench", tools::add_bench(app));
    if (argc == 1) {
      std::fputs(app.help().c_str(), stdout);
      return tools::kExitError;
    }
    const std::string first = argv[1];
    if (!first.empty() && first[0] != '-' && !is_command(actions, first)) {
      return tools::fail("unknown command '" + first + "'; sluice --help lists them");
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // CLI11 has a number for each mistake; zero is --help.
      return app.exit(error) == 0 ? tools::kExitDone : tools::kExitError;
    }
    for (const auto& [name, action] : actions) {
      if (app.got_subcommand(name)) return action();
    }
    return tools::kExitError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
    return tools::kExitError;
  }
}
