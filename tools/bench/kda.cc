// Implements `sluice bench kda`: everything that key-wise gates are measured by, as one table.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/kda_report.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/rows.hpp"
#include "tools/bench/step_report.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kGates[] = {"kda_bounded", "kda_slow"};

struct KdaOptions {
  PrefillSettings prefill;
  std::vector<std::string> parts = {"prefill", "decode", "layer"}, lengths;
  std::string svg;
};

bool wants(const KdaOptions& options, const std::string& part) {
  return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
}

template <class Report>
void take(const Report& measured, KdaReport* report) {
  const std::vector<nlohmann::json> rows = kda_rows(measured);
  report->rows.insert(report->rows.end(), rows.begin(), rows.end());
  report->reports.push_back(to_json(measured));
}

void measure_all(Machine& machine, double start_seconds, const KdaOptions& options,
                 KdaReport* report) {
  for (const char* gates : kGates) {
    if (!wants(options, "prefill")) break;
    PrefillSettings settings = options.prefill;
    settings.grid = "kda", settings.gates = gates;
    for (const Cell& cell : named_grid("kda")) {
      const std::string lengths = lengths_text(cell.lengths);
      const std::vector<std::string>& only = options.lengths;
      if (!only.empty() && std::find(only.begin(), only.end(), lengths) == only.end()) continue;
      settings.cells.push_back(cell);
      settings.cells.back().key_gates = true;
    }
    const PrefillReport measured = measure_prefill(machine, start_seconds, settings);
    for (const PrefillRow& row : measured.rows) {
      const bool saturated = row.cell.HV == 32 && lengths_text(row.cell.lengths) == "8192x4";
      if (saturated && report->us_per_chunk_head != report->us_per_chunk_head) {
        report->us_per_chunk_head = row.us_per_chunk_head;
      }
    }
    take(measured, report);
  }
  for (const bool layer : {false, true}) {
    const bool on_gpu = options.prefill.run.backend == Implementation::kCuda;
    if (!on_gpu || !wants(options, layer ? "layer" : "decode")) continue;
    StepSettings settings;
    settings.cell.layer = layer, settings.grid = "kda";
    settings.run.commit = report->commit, settings.command = report->command;
    take(measure_steps(machine, settings), report);
  }
}

int bench_kda(const KdaOptions& options) {
  const Implementation backend = options.prefill.run.backend;
  if (const std::string reason = unavailable(backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  double start_seconds = kUnknown;
  const std::unique_ptr<Machine> machine = machine_of(backend, &start_seconds);
  if (const int code = sluice_warm_up(machine->device()); code != SLUICE_OK) {
    return fail(sluice_last_error());
  }
  KdaReport report;
  report.date = utc_now(), report.version = sluice_version();
  report.commit = options.prefill.run.commit, report.command = options.prefill.command;
  report.machine = machine->describe();
  measure_all(*machine, start_seconds, options, &report);
  print_kda(report);
  int status = kExitDone;
  for (const nlohmann::json& row : report.rows) {
    if (row.at("failure") != "") status = kExitError;
    const double limit = error_limit(short_dtype(options.prefill.run.dtype));
    if (number_in(row, "error_o") > limit) status = kExitWrong;
  }
  if (!options.svg.empty())
    status = std::max(status, write_record(options.svg, kda_figure(report), kExitDone));
  return write_record(options.prefill.run.json, record_text(to_json(report)), status);
}

}  // namespace

Action add_bench_kda(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("kda", "Key-wise gates: prefill, decode, layers");
  auto options = std::make_shared<KdaOptions>();
  options->prefill.run.repeat = 30;
  add_device_option(*command, &options->prefill.run.backend);
  add_list(*command, "--part", &options->parts, "prefill, decode, layer")
      ->check(CLI::IsMember({"prefill", "decode", "layer"}))
      ->capture_default_str();
  add_list(*command, "--lengths", &options->lengths, "of prefill only these, e.g. 8192x1");
  add_checked(*command, "--history", &options->prefill.history,
              "of prefill: forget drops what heads have forgotten, as cuDNN's engine does",
              CLI::IsMember(history_names()));
  add_dtype_option(*command, &options->prefill.run.dtype);
  add_record_options(*command, "timed calls of each prefill", &options->prefill.run);
  command->add_option("--svg", options->svg, "draw the table");
  command->footer(
      "The grids of `sluice bench prefill --grid kda` with gates kda_bounded and kda_slow, of "
      "`decode --grid kda` and\nof `layer --grid kda`. A CPU has the first alone. Exit status 1 if "
      "results are wrong, 2 if a row failed.\nExamples:\n"
      "  sluice bench kda --commit $(git rev-parse --short HEAD) --json kda.json --svg kda.svg\n"
      "  sluice bench kda --backend cpu --lengths 8192x1 --repeat 1");
  return [command, options] {
    options->prefill.command = command_text("kda", *command);
    return bench_kda(*options);
  };
}

}  // namespace sluice::tools
