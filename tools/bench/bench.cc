// Implements `sluice bench`, which chooses what to time.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.hpp"

#include <fmt/ranges.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/whole_file.hpp"

namespace sluice::tools {

void add_device_option(CLI::App& command, Implementation* out) {
  command
      .add_option_function<std::string>(
          "--backend",
          [out](const std::string& name) {
            *out = name == "cuda" ? Implementation::kCuda : Implementation::kCpu;
          },
          "cuda or cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}))
      ->default_str("cuda");
}

void add_record_options(CLI::App& command, const char* what, int* repeat, std::string* commit,
                        std::string* json) {
  command.add_option("--repeat", *repeat, what)->check(CLI::Range(1, 10000))->capture_default_str();
  command.add_option("--commit", *commit, "what to record as the commit measured");
  command.add_option("--json", *json, "write everything measured");
}

void add_run_options(CLI::App& command, RunOptions* options) {
  add_dtype_option(command, &options->dtype);
  add_record_options(command, "timed calls of each row", &options->repeat, &options->commit,
                     &options->json);
}

std::string command_text(const std::string& name, const CLI::App& command) {
  std::string text = "sluice bench " + name;
  for (const CLI::Option* option : command.get_options()) {
    const std::string option_name = option->get_name();
    if (option->count() == 0 || option_name == "--help" || option_name == "--json") continue;
    text += " " + option_name;
    if (option->get_items_expected_max() == 0) continue;
    text += fmt::format(" {}", fmt::join(option->results(), ","));
  }
  return text;
}

int write_record(const std::string& path, const std::string& text, int status) {
  if (path.empty()) return status;
  const Status written = io::write_whole_file(path, std::as_bytes(std::span(text)));
  return written.ok() ? status : fail(std::string("cannot be written: ") + written.message);
}

Action add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Time the operators");
  auto quick = std::make_shared<QuickSettings>();
  add_quick_options(*command, quick.get());
  command->footer(
      "Without a subcommand: a quick look at one layer's prefill and decode, as python -m sluice\n"
      "bench takes it. What docs/benchmarks.md holds is measured by the subcommands.\n"
      "Examples:\n"
      "  sluice bench\n"
      "  sluice bench --backend cpu --tokens 2048 --batch 8\n"
      "  sluice bench cpu --model qwen3-next --T 512,2048\n"
      "  sluice bench prefill --grid marks --json marks.json\n"
      "  sluice bench decode --json decode.json\n"
      "  sluice bench layer --B 1,32 --state bf16\n"
      "  sluice bench kda --json kda.json --svg kda.svg\n"
      "  sluice bench parts --json parts.json\n"
      "  sluice bench stages --json stages.json\n"
      "  sluice bench backward --json backward.json\n"
      "  sluice bench train-layer --json train_layer.json");
  const std::vector<std::pair<const char*, Action>> actions = {
      {"cpu", add_bench_cpu(*command)},
      {"prefill", add_bench_prefill(*command)},
      {"decode", add_bench_decode(*command)},
      {"layer", add_bench_layer(*command)},
      {"kda", add_bench_kda(*command)},
      {"parts", add_bench_parts(*command)},
      {"stages", add_bench_stages(*command)},
      {"backward", add_bench_backward(*command)},
      {"train-layer", add_bench_train_layer(*command)}};
  return [command, actions, quick] {
    for (const auto& [name, action] : actions) {
      if (command->got_subcommand(name)) return action();
    }
    return bench_quick(*quick);
  };
}

}  // namespace sluice::tools
