// Implements `sluice bench prefill`: times chunk_forward on grids of head counts and lengths,
// beside what the machine allows and what peers take.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/rows.hpp"

namespace sluice::tools {
namespace {

struct PrefillOptions {
  PrefillSettings settings;
  std::vector<std::string> heads, lengths, ways;
  bool sweep = false;
  std::string json;
  int64_t K = 128, V = 128;
  bool warm = false;
};

// The cells asked for: --heads x --lengths, each completed from the named grid; what is wrong,
// empty if nothing.
std::string choose_cells(const PrefillOptions& options, PrefillSettings* s) {
  const std::vector<Cell> grid = named_grid(s->grid);
  if (options.heads.empty() && options.lengths.empty()) s->cells = grid;
  std::vector<Cell> heads;
  std::vector<std::vector<int64_t>> lengths;
  for (const std::string& text : options.heads) {
    if (std::string trouble = parse_heads(text, &heads.emplace_back()); !trouble.empty()) {
      return trouble;
    }
  }
  for (const std::string& text : options.lengths) {
    if (std::string trouble = parse_lengths(text, &lengths.emplace_back()); !trouble.empty()) {
      return trouble;
    }
  }
  if (heads.empty() != lengths.empty()) {
    for (const Cell& cell : grid) {
      for (const Cell& pair : heads) {
        if (pair.H == cell.H && pair.HV == cell.HV) s->cells.push_back(cell);
      }
      for (const std::vector<int64_t>& list : lengths) {
        if (list == cell.lengths) s->cells.push_back(cell);
      }
    }
    if (s->cells.empty())
      return "grid " + s->grid + " has no such cell; give --heads and --lengths";
  }
  for (const Cell& pair : heads) {
    for (const std::vector<int64_t>& list : lengths) {
      s->cells.push_back(pair);
      s->cells.back().lengths = list;
    }
  }
  if (!options.heads.empty() && !options.lengths.empty()) s->grid = "cells";
  for (Cell& cell : s->cells) {
    cell.K = options.K, cell.V = options.V, cell.key_gates = are_key_wise(s->gates);
  }
  return {};
}

// The ways of each cell; what is wrong, empty if nothing.
std::string choose_ways(const PrefillOptions& options, PrefillSettings* s) {
  if (options.sweep) s->ways = swept_ways();
  if (!options.ways.empty()) s->ways.clear();
  for (const std::string& text : options.ways) {
    if (std::string trouble = parse_split_way(text, &s->ways.emplace_back()); !trouble.empty()) {
      return trouble;
    }
  }
  return {};
}

// Wrong results before missing ones.
int verdict(const PrefillReport& report) {
  int status = kExitDone;
  for (const PrefillRow& row : report.rows) {
    if (!row.failure.empty()) {
      status = std::max(status,
                        row.failure.rfind("not supported", 0) == 0 ? kExitUnavailable : kExitError);
    } else if (is_wrong(row, report.dtype)) {
      fmt::print(stderr, "sluice: {} {}: an error is above {:g}\n", heads_text(row.cell),
                 lengths_text(row.cell.lengths), error_limit(report.dtype));
      return kExitWrong;
    }
  }
  return status;
}

int bench_prefill(PrefillOptions options) {
  PrefillSettings& s = options.settings;
  s.cold = !options.warm;
  if (const std::string trouble = choose_cells(options, &s); !trouble.empty()) return fail(trouble);
  if (const std::string trouble = choose_ways(options, &s); !trouble.empty()) return fail(trouble);
  if (const std::string reason = unavailable(s.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  double start_seconds = kUnknown;
  const std::unique_ptr<Machine> machine = machine_of(s.backend, &start_seconds);
  const PrefillReport report = measure_prefill(*machine, start_seconds, s);
  print_prefill(report);
  const int status = write_record(options.json, record_text(to_json(report)), kExitDone);
  if (status != kExitDone) return status;
  return s.errors ? verdict(report) : kExitDone;
}

void add_cell_options(CLI::App* command, PrefillOptions* o) {
  command->add_option("--grid", o->settings.grid, fmt::format("{}", fmt::join(grid_names(), ", ")))
      ->check(CLI::IsMember(grid_names()))
      ->capture_default_str();
  command
      ->add_option("--heads", o->heads,
                   "H/HV, several separated by commas; alone: only these of the grid")
      ->delimiter(',');
  command
      ->add_option("--lengths", o->lengths,
                   "of packed sequences, e.g. 8192x4 or 28672+4096; alone: only these of the grid")
      ->delimiter(',');
  const CLI::Range sizes(1, 1024);
  command->add_option("--K", o->K, "key dimension")->check(sizes)->capture_default_str();
  command->add_option("--V", o->V, "value dimension")->check(sizes)->capture_default_str();
  command
      ->add_option(
          "--gates", o->settings.gates,
          "published (a quarter of the heads without decay), slow (-1e-3), flat (0), uniform "
          "(-U(0,1)); one for each channel of k: kda_bounded (-5 sigmoid), kda_slow")
      ->check(CLI::IsMember(gate_names()))
      ->capture_default_str();
  add_dtype_option(*command, &o->settings.dtype);
  add_dtype_option(*command, &o->settings.gate_dtype, "--gate-dtype",
                   "store gates and write strengths as f32, bf16 or f16");
  command->add_flag("--norm", o->settings.norm,
                    "q and k through the l2 norm inside, as models call it; no peer is set beside");
  CLI::Option* ways = command
                          ->add_option("--split", o->ways,
                                       "how sequences are spread over the GPU: auto, never, "
                                       "columns, length, or a number of segments; several make "
                                       "several rows")
                          ->delimiter(',');
  command->add_flag("--sweep", o->sweep, "auto beside every forced way")->excludes(ways);
  command
      ->add_option(
          "--history", o->settings.history,
          "whether heads that have forgotten it may drop it (these inputs allow it); auto, as a "
          "call without it, drops nothing here")
      ->check(CLI::IsMember(history_names()))
      ->capture_default_str();
  command->add_flag("!--unknown-lengths", o->settings.lengths_known,
                    "withhold max_tokens, so that the lengths are on the device alone");
}

void add_run_options(CLI::App* command, PrefillOptions* o) {
  PrefillSettings& s = o->settings;
  add_device_option(*command, &s.backend);
  add_record_options(*command, "timed calls of each cell", &s.repeat, &s.commit, &o->json);
  command
      ->add_option("--rest", s.rest_ms,
                   "milliseconds of idleness before each cell, so that its clocks do not depend on "
                   "the cell before")
      ->check(CLI::Range(0, 60000))
      ->capture_default_str();
  CLI::Option* warm = command->add_flag("--warm", o->warm, "leave the caches as the last call did");
  command
      ->add_flag_function(
          "--cold", [](int64_t) {}, "fill the L2 with other data before each call (the default)")
      ->excludes(warm);
  command->add_flag("--host", s.whole_calls,
                    "also time whole calls on the host, from entry until their results are there");
  command->add_flag("!--no-error", s.errors, "skip the comparison with the float64 reference");
}

}  // namespace

Action add_bench_prefill(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("prefill", "chunk_forward on grids of heads and lengths");
  auto options = std::make_shared<PrefillOptions>();
  add_cell_options(command, options.get());
  add_run_options(command, options.get());
  command->footer(
      "Inputs: unit random keys, a quarter of the heads without decay, initial and final states "
      "on.\n"
      "Columns, JSON and floors: docs/benchmarks.md. Exit status 1 if results are wrong, 3 if the\n"
      "backend cannot run here or has no kernel for a cell.\n"
      "Examples:\n"
      "  sluice bench prefill --grid marks --json marks.json\n"
      "  sluice bench prefill --grid side_by_side --host\n"
      "  sluice bench prefill --grid published --history forget --commit $(git rev-parse --short "
      "HEAD) --json "
      "h200.json\n"
      "  sluice bench prefill --heads 16/64,8/32 --lengths 8192x4,28672+4096 --gates slow\n"
      "  sluice bench prefill --heads 2/8,8/32 --lengths 32768 --sweep --history strict\n"
      "  sluice bench prefill --grid tileops --gates uniform --dtype fp16 --no-error\n"
      "  sluice bench prefill --heads 16/32 --lengths 8192x4 --gate-dtype bf16 --norm\n"
      "  sluice bench prefill --grid kda --gates kda_slow --json kda_slow.json\n"
      "  sluice bench prefill --backend cpu --heads 2/4 --lengths 512 --dtype fp32 --repeat 5");
  return [command, options] {
    options->settings.command = command_text("prefill", *command);
    return bench_prefill(*options);
  };
}

}  // namespace sluice::tools
