// Implements sluice verify: every case of some files against its recorded results; or somebody
// else's results against them, which makes case files a conformance kit.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/case_settings.hpp"
#include "tools/commands.hpp"
#include "tools/execute.hpp"
#include "tools/judge.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

struct VerifySettings {
  std::vector<std::string> paths;
  std::string against, filter, layout;
  sluice_dtype dtype = check::kF32;
  ExecuteOptions options;
};

struct Tally {
  int cases = 0, tensors = 0, failed = 0, unsupported = 0;
};

// The errors in brief; in full, with limits and places, of what is wrong or has no numbers.
std::string line_of(const Judgement& judgement) {
  const check::Comparison& c = judgement.comparison;
  if (!judgement.verdict.pass || c.compared == 0) return judgement.verdict.line;
  std::string line = fmt::format("{:<14} {}  rel {:.1e} of {:.0e}", judgement.tensor,
                                 verdict_word(true), c.relative_l2, judgement.limit.whole);
  if (c.worst_head.head >= 0) line += fmt::format("  head {:.1e}", c.worst_head.relative_l2);
  if (c.worst_window.token >= 0) line += fmt::format("  window {:.1e}", c.worst_window.relative_l2);
  return line;
}

// The case's results as they stand in a file of results.
Results results_from(const io::SafetensorsFile& file, const io::Case& c) {
  Results results;
  for (const std::string& tensor : c.expected) {
    const io::TensorEntry* entry = file.find(c.name + "." + tensor);
    if (entry == nullptr || !io::is_floating(entry->type)) continue;
    check::Array array;
    array.shape = entry->shape;
    array.values = io::read_floats(*entry);
    const bool exchange =
        stored_head_first(c, tensor) && array.shape.size() >= 3 && array.shape.size() <= 4;
    results[tensor] = exchange ? exchange_tokens_and_heads(array) : array;
  }
  return results;
}

Status verify_case(const io::CaseFile& file, const io::Case& c, const VerifySettings& settings,
                   const io::SafetensorsFile* against, Tally* tally) {
  const Truth truth = truth_of(file, c, settings.dtype);
  if (!truth.status.ok()) return truth.status;
  Execution execution;
  if (against != nullptr) {
    execution.results = results_from(*against, c);
  } else {
    execution = execute(file, c, settings.options);
    if (execution.status.code == Code::kUnsupported) {
      ++tally->unsupported;
      fmt::print("{} ({})\n  not supported by {}: {}\n", c.name, io::case_op_name(c.op),
                 backend_name(settings.options.implementation), execution.status.message);
      return ok_status();
    }
    if (!execution.status.ok()) return execution.status;
  }
  fmt::print("{} ({}{}{})\n", c.name, io::case_op_name(c.op), execution.steps.empty() ? "" : ", ",
             execution.steps.empty() ? "" : execution.steps.front().kernel);
  ++tally->cases;
  for (const Judgement& judgement : judge_case(file, c, execution.results, truth)) {
    fmt::print("  {}\n", line_of(judgement));
    ++tally->tensors;
    tally->failed += judgement.verdict.pass ? 0 : 1;
  }
  return ok_status();
}

// The last line, and the exit status.
int report(const Tally& tally, const VerifySettings& settings) {
  fmt::print("{}, {}, {} failed", counted(tally.cases, "case"), counted(tally.tensors, "tensor"),
             tally.failed);
  if (tally.unsupported > 0) {
    fmt::print("; {} not supported by {}", counted(tally.unsupported, "more case"),
               backend_name(settings.options.implementation));
  }
  fmt::print("\n");
  if (tally.failed > 0) return kExitWrong;
  return tally.unsupported == 0 ? kExitDone : kExitUnavailable;
}

int verify_drawn(const VerifySettings& settings) {
  if (!settings.against.empty()) return fail("--against needs the case files that it answers");
  CasesInMemory cases;
  Status status = make_suite("self-check", &cases);
  Tally tally;
  for (size_t i = 0; status.ok() && i < cases.file.cases.size(); ++i) {
    const io::Case& c = cases.file.cases[i];
    if (c.name.find(settings.filter) == std::string::npos) continue;
    status = verify_case(cases.file, c, settings, nullptr, &tally);
  }
  return status.ok() ? report(tally, settings) : fail(status.message);
}

int verify(const VerifySettings& settings) {
  if (const std::string reason = unavailable(settings.options.implementation); !reason.empty()) {
    return fail_unavailable(reason);
  }
  if (settings.paths.empty()) return verify_drawn(settings);
  io::SafetensorsFile against;
  if (!settings.against.empty()) {
    const Status status = io::SafetensorsFile::open(settings.against, &against);
    if (!status.ok()) return fail(status.message);
  }
  Tally tally;
  for (const std::string& path : settings.paths) {
    io::CaseFile file;
    if (const Status status = io::open_case_file(path, &file); !status.ok()) {
      return fail(status.message);
    }
    for (const io::Case& c : file.cases) {
      if (c.name.find(settings.filter) == std::string::npos) continue;
      const Status status =
          verify_case(file, c, settings, settings.against.empty() ? nullptr : &against, &tally);
      if (!status.ok()) return fail(c.name + ": " + status.message);
    }
  }
  if (tally.cases + tally.unsupported == 0) {
    return fail(fmt::format("no case's name contains '{}'", settings.filter));
  }
  return report(tally, settings);
}

}  // namespace

Action add_verify(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "Compare every case with its recorded results");
  auto settings = std::make_shared<VerifySettings>();
  command->add_option(
      "FILE", settings->paths,
      "case files (safetensors, docs/case-format.md); without: every operator on random "
      "inputs against the reference");
  add_backend_option(*command, &settings->options.implementation);
  add_dtype_option(*command, &settings->dtype);
  command
      ->add_option("--layout", settings->layout,
                   "memory order of token tensors: bthd or bhtd (default: the case's own)")
      ->check(CLI::IsMember({"bthd", "bhtd"}));
  command->add_option("--filter", settings->filter, "only cases whose name contains this");
  command->add_option("--against", settings->against,
                      "compute nothing: check the results in this safetensors file");
  command->footer(
      "Prints relative L2 errors of the whole tensor (and their limit), the worst head and the\n"
      "worst 64-token window; of what is wrong also where, and the largest absolute error. With\n"
      "--dtype bf16 or f16 the truth is the float64 reference on the rounded inputs.\n"
      "With --backend cuda, operands are copied to the first GPU and results back. Cases that the\n"
      "backend does not support are listed and counted.\n"
      "Exit status 1 if an error is above its limit; else 3 if a case is not supported, or if the\n"
      "backend cannot run here.\n"
      "Examples:\n"
      "  sluice verify\n"
      "  sluice verify tests/golden/hf_prefill.safetensors examples/data/*.safetensors\n"
      "  sluice verify --dtype bf16 --layout bhtd --filter model "
      "tests/golden/hf_prefill.safetensors\n"
      "  sluice verify --backend cuda --dtype bf16 tests/golden/hf_prefill.safetensors\n"
      "  sluice verify --against my_results.safetensors tests/golden/hf_prefill.safetensors");
  return [settings] {
    settings->options.inputs = settings->options.outputs = settings->dtype;
    if (!settings->layout.empty()) settings->options.head_first = settings->layout == "bhtd";
    return verify(*settings);
  };
}

}  // namespace sluice::tools
