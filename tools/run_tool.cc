// Reads the command line of sluice and runs the command that it names; and defines options that several
// commands have.
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_tool.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "check/array.hpp"
#include "tools/commands.hpp"

namespace sluice::tools {
namespace {

const std::map<std::string, Implementation>& backends() {
  static const std::map<std::string, Implementation> kBackends = {
      {"auto", Implementation::kAuto},
      {"reference", Implementation::kReference},
      {"reference-chunked", Implementation::kReferenceChunked},
      {"cpu", Implementation::kCpu},
      {"cuda", Implementation::kCuda}};
  return kBackends;
}

template <class Value>
std::string take_choice(const std::map<std::string, Value>& choices, const std::string& text,
                        Value* out) {
  const auto found = choices.find(text);
  if (found != choices.end()) {
    *out = found->second;
    return {};
  }
  std::string known;
  for (const auto& [name, value] : choices) known += (known.empty() ? "" : ", ") + name;
  return fmt::format("'{}' is none of {}", text, known);
}

using Actions = std::vector<std::pair<const char*, Action>>;

bool is_command(const Actions& actions, const std::string& name) {
  return std::any_of(actions.begin(), actions.end(),
                     [&](const auto& action) { return name == action.first; });
}

}  // namespace

int fail(const std::string& message) {
  fmt::print(stderr, "sluice: {}\n", message);
  return kExitError;
}

int fail_unavailable(const std::string& message) {
  fail(message);
  return kExitUnavailable;
}

sluice_device device_of(Implementation implementation) {
  return implementation == Implementation::kCuda ? cuda_device() : kCpuDevice;
}

void add_backend_option(CLI::App& command, Implementation* out) {
  command
      .add_option_function<std::string>(
          "--backend", [](const std::string&) {},
          "auto, reference (float64, token by token), reference-chunked, cpu or cuda")
      ->type_name("NAME")
      ->default_str("auto")
      ->check([out](const std::string& text) { return take_choice(backends(), text, out); });
}

void add_dtype_option(CLI::App& command, sluice_dtype* out, const std::string& name,
                      const std::string& help) {
  static const std::map<std::string, sluice_dtype> kTypes = {{"f32", check::kF32},
                                                             {"bf16", check::kBF16},
                                                             {"f16", check::kF16},
                                                             {"fp32", check::kF32},
                                                             {"fp16", check::kF16}};
  command.add_option_function<std::string>(
             name, [](const std::string&) {}, help)
      ->type_name("TYPE")
      ->default_str(check::same_dtype(*out, check::kF32) ? "f32" : "bf16")
      ->check([out](const std::string& text) { return take_choice(kTypes, text, out); });
}

const char* backend_name(Implementation implementation) {
  for (const auto& [name, value] : backends()) {
    if (value == implementation) return name.c_str();
  }
  return "unknown";
}

std::string unavailable(Implementation implementation) {
  if (implementation == Implementation::kAuto) return {};
  sluice_implementation_info list[16];
  const int count = std::min(sluice_implementations(list, 16), 16);
  for (int i = 0; i < count; ++i) {
    if (list[i].id != static_cast<int32_t>(implementation)) continue;
    if (list[i].available != 0) return {};
    return fmt::format("backend {} cannot run here; it needs {}", list[i].name,
                       list[i].requirement);
  }
  return fmt::format("backend {} is not part of this build", backend_name(implementation));
}

int run_tool(int argc, char** argv) {
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
    actions.emplace_back("doctor", add_doctor(app));
    actions.emplace_back("info", add_info(app));
    actions.emplace_back("run", add_run(app));
    actions.emplace_back("verify", add_verify(app));
    actions.emplace_back("make-case", add_make_case(app));
    actions.emplace_back("bench", add_bench(app));
    if (argc == 1) {
      std::fputs(app.help().c_str(), stdout);
      return kExitError;
    }
    const std::string first = argv[1];
    if (!first.empty() && first[0] != '-' && !is_command(actions, first)) {
      return fail("unknown command '" + first + "'; sluice --help lists them");
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // CLI11 has a number for each mistake; zero is --help.
      return app.exit(error) == 0 ? kExitDone : kExitError;
    }
    for (const auto& [name, action] : actions) {
      if (app.got_subcommand(name)) return action();
    }
    return kExitError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
    return kExitError;
  }
}

}  // namespace sluice::tools
