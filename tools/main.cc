// sluice, the command-line tool: computes, checks, makes and times cases of gated linear attention.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "tools/commands.hpp"

int main(int argc, char** argv) {
  namespace tools = sluice::tools;
  try {
    CLI::App app("Sluice: gated linear attention on CPUs and GPUs", "sluice");
    app.set_version_flag("--version", sluice_version());
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  sluice run examples/data/qwen3_next_layer.safetensors\n"
        "  sluice verify --backend cpu tests/golden/hf_prefill.safetensors\n"
        "  sluice COMMAND --help\n"
        "Exit status: 0 done and right, 1 a result is wrong, 2 it could not be done.");
    std::vector<std::pair<const char*, tools::Action>> actions;
    actions.emplace_back("info", tools::add_info(app));
    actions.emplace_back("run", tools::add_run(app));
    actions.emplace_back("verify", tools::add_verify(app));
    actions.emplace_back("make-case", tools::add_make_case(app));
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
