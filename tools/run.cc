// Implements `sluice run`: computes the cases of a file step by step and shows how near the
// recorded results are.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "io/safetensors_writer.hpp"
#include "tools/commands.hpp"
#include "tools/execute.hpp"
#include "tools/judge.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

struct RunSettings {
  std::string path, output, filter;
  ExecuteOptions options;
};

const Judgement* find(const std::vector<Judgement>& judgements, const std::string& tensor) {
  for (const Judgement& judgement : judgements) {
    if (judgement.tensor == tensor) return &judgement;
  }
  return nullptr;
}

// Error cells of some tensors, "-" where nothing was recorded, then PASS or FAIL.
std::vector<std::string> error_cells(const std::vector<Judgement>& judgements,
                                     const std::vector<std::string>& tensors) {
  std::vector<std::string> cells;
  bool pass = true;
  for (const std::string& tensor : tensors) {
    const Judgement* judgement = find(judgements, tensor);
    cells.push_back(judgement == nullptr ? "-" : error_text(judgement->comparison.relative_l2));
    pass = pass && (judgement == nullptr || judgement->verdict.pass);
  }
  cells.push_back(pass ? "PASS" : "FAIL");
  return cells;
}

void add_row(Table* table, std::vector<std::string> cells, const std::vector<std::string>& errors) {
  cells.insert(cells.end(), errors.begin(), errors.end());
  table->add(std::move(cells));
}

std::vector<std::string> step_cells(const std::string& name, const Step& step) {
  return {name, step.kind, std::to_string(step.tokens), seconds_text(step.seconds),
          number_text(static_cast<double>(step.tokens) / step.seconds)};
}

std::string shape_of(const io::CaseShape& s) {
  return fmt::format("B {}, T {}, H {}, HV {}, K {}, V {}, W {}", s.B, s.T, s.H, s.HV, s.K, s.V,
                     s.W);
}

void print_layer(const io::Case& c, const Execution& execution,
                 const std::vector<Judgement>& judgements) {
  fmt::print("case {}: a layer, {}\n", c.name, shape_of(c.shape));
  Table table(
      {"step", "<kind", "tokens", "time", "tokens/s", "core_out", "norm_out", "output", "<result"});
  for (size_t i = 0; i < execution.steps.size(); ++i) {
    const std::string prefix = "step" + std::to_string(i) + ".";
    add_row(&table, step_cells(std::to_string(i), execution.steps[i]),
            error_cells(judgements, {prefix + "core_out", prefix + "norm_out", prefix + "output"}));
  }
  table.print();
  for (const char* tensor : {"final_state", "final_conv_state"}) {
    const Judgement* judgement = find(judgements, tensor);
    if (judgement != nullptr) fmt::print("{}\n", judgement->verdict.line);
  }
}

// One row for all calls of a case that is no layer.
void add_operator_row(const io::Case& c, const Execution& execution,
                      const std::vector<Judgement>& judgements, Table* table) {
  Step sum = execution.steps.front();
  for (size_t i = 1; i < execution.steps.size(); ++i) {
    sum.tokens += execution.steps[i].tokens;
    sum.seconds += execution.steps[i].seconds;
  }
  std::string output = find(judgements, "o") != nullptr ? "o" : "out";
  // A case of single stages or of gradients: the first of its results.
  if (find(judgements, output) == nullptr) output = judgements.front().tensor;
  std::vector<std::string> cells = error_cells(judgements, {output, "final_state"});
  const bool all = std::all_of(judgements.begin(), judgements.end(),
                               [](const Judgement& one) { return one.verdict.pass; });
  cells.back() = all ? "PASS" : "FAIL";  // results without a column too
  add_row(table, step_cells(c.name, sum), cells);
}

void print_legend(const std::set<std::string>& kernels, const std::set<double>& tolerances) {
  fmt::print("Errors are relative L2 against the recorded values; tolerance {:.0e}.\nKernels: {}\n",
             fmt::join(tolerances, ", "), fmt::join(kernels, ", "));
}

void add_results(const io::CaseFile& file, const io::Case& c, const Execution& execution,
                 io::SafetensorsWriter* writer) {
  for (const auto& [tensor, value] : execution.results) {
    const std::string name = c.name + "." + tensor;
    const check::Array array =
        stored_head_first(c, tensor) ? exchange_tokens_and_heads(value) : value;
    writer->add_floats(name, io::ElementType::kF32, array.shape, array.values);
  }
  writer->set_metadata(
      "sluice.results",
      nlohmann::json{{"version", sluice_version()}, {"cases", file.file.path()}}.dump());
}

int run(const RunSettings& settings) {
  if (const std::string reason = unavailable(settings.options.implementation); !reason.empty()) {
    return fail_unavailable(reason);
  }
  io::CaseFile file;
  if (const Status status = io::open_case_file(settings.path, &file); !status.ok()) {
    return fail(status.message);
  }
  sluice_warm_up(device_of(settings.options.implementation));
  io::SafetensorsWriter writer;
  Table operators({"<case", "<kind", "tokens", "time", "tokens/s", "o", "final_state", "<result"});
  std::set<std::string> kernels;
  std::set<double> tolerances;
  int matched = 0, wrong = 0, unsupported = 0;
  bool any_operator = false;
  for (const io::Case& c : file.cases) {
    if (!settings.filter.empty() && c.name != settings.filter) continue;
    ++matched;
    const Execution execution = execute(file, c, settings.options);
    if (execution.status.code == Code::kUnsupported) {
      ++unsupported;
      fmt::print("{}: not supported by {}: {}\n", c.name,
                 backend_name(settings.options.implementation), execution.status.message);
      continue;
    }
    if (!execution.status.ok()) return fail(c.name + ": " + execution.status.message);
    const Truth truth = truth_of(file, c, check::kF32);
    const std::vector<Judgement> judgements = judge_case(file, c, execution.results, truth);
    if (c.op == io::CaseOp::kLayer) {
      print_layer(c, execution, judgements);
    } else {
      add_operator_row(c, execution, judgements, &operators);
      any_operator = true;
    }
    for (const Step& step : execution.steps) kernels.insert(step.kernel);
    tolerances.insert(c.tolerance);
    for (const Judgement& judgement : judgements) wrong += judgement.verdict.pass ? 0 : 1;
    add_results(file, c, execution, &writer);
  }
  if (matched == 0) {
    return fail(fmt::format("{} has no case '{}'", settings.path, settings.filter));
  }
  if (kernels.empty()) return kExitUnavailable;
  if (any_operator) operators.print();
  print_legend(kernels, tolerances);
  if (!settings.output.empty()) {
    if (const Status status = writer.write(settings.output); !status.ok()) {
      return fail(status.message);
    }
    fmt::print("results written to {}\n", settings.output);
  }
  fmt::print("{}\n", wrong > 0 ? "FAIL" : unsupported > 0 ? "not all supported" : "PASS");
  if (wrong > 0) return kExitWrong;
  return unsupported == 0 ? kExitDone : kExitUnavailable;
}

}  // namespace

Action add_run(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Compute the cases of a file, step by step, and compare");
  auto settings = std::make_shared<RunSettings>();
  command->add_option("FILE", settings->path, "case file (safetensors, docs/case-format.md)")
      ->required();
  command->add_option("-o,--output", settings->output, "write the results under the same names");
  command->add_option("--case", settings->filter, "run this case only");
  add_backend_option(*command, &settings->options.implementation);
  command->footer(
      "A layer's first step is a prefill, the others decode on the states it left; out_proj is "
      "done\n"
      "by the tool. With --backend cuda, operands are copied to the first GPU and results back; "
      "times\n"
      "are without the copies. Exit status 1 if an error is above the case's tolerance, 3 if the\n"
      "backend cannot run here or does not support a case.\n"
      "Examples:\n"
      "  sluice run examples/data/qwen3_next_layer.safetensors\n"
      "  sluice run --backend reference -o results.safetensors "
      "tests/golden/hf_prefill.safetensors\n"
      "  sluice verify --against results.safetensors tests/golden/hf_prefill.safetensors");
  return [settings] { return run(*settings); };
}

}  // namespace sluice::tools
