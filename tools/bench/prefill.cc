// Implements `sluice bench prefill`: times chunk_forward on grids of head counts and lengths,
// beside what the machine allows and what peers take.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "tools/bench/bench.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/rows.hpp"
#include "tools/call.hpp"

namespace sluice::tools {
namespace {

double timed_call_ms(Machine& machine, PrefillProblem* problem) {
  machine.synchronize();
  const Stopwatch watch;
  problem->call();
  machine.synchronize();
  return 1e3 * watch.seconds();
}

// Whole calls on an idle machine, as whoever waits for one sees them.
double whole_call_microseconds(Machine& machine, PrefillProblem* problem, int repeat) {
  std::vector<double> seconds;
  for (int i = 0; i < repeat; ++i) seconds.push_back(1e-3 * timed_call_ms(machine, problem));
  return Quantiles(seconds, 1e6).median;
}

void derive(const Machine& machine, const PrefillSettings& s, const Ceilings& ceilings,
            PrefillRow* row) {
  const int64_t element_bytes = s.run.dtype.bits / 8;
  const double seconds = 1e-3 * row->ms;
  row->us_per_chunk_head =
      1e6 * seconds / static_cast<double>(busiest_chunks(row->cell, machine.processors()));
  row->tflops = prefill_flops(row->cell) / seconds * 1e-12;
  row->gb_per_s = prefill_bytes(row->cell, element_bytes) / seconds * 1e-9;
  const Floor floor = floor_of(row->cell, element_bytes, ceilings);
  row->floor_ms = 1e3 * floor.seconds;
  row->memory_floor = floor.memory;
}

void time_cell(Machine& machine, const PrefillSettings& s, const Ceilings& ceilings,
               PrefillProblem* problem, PrefillRow* row) {
  const bool host = machine.device().type == SLUICE_DEVICE_CPU;
  machine.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(s.rest_ms));
  for (int i = 0; i < kWarmUps; ++i) problem->call();
  row->kernel = sluice_last_kernel();
  machine.synchronize();
  row->segments = problem->planned_segments();
  const CallTimes times = machine.time_calls([&] { problem->call(); }, s.run.repeat, s.cold);
  const Quantiles ms(times.seconds, 1e3);
  row->ms = ms.median, row->ms_min = ms.least, row->ms_p90 = ms.p90;
  if (times.clock_mhz > 0) row->clock_mhz = times.clock_mhz;
  if (!host) row->host_us = host_microseconds(machine, kHostCalls, [&](int) { problem->call(); });
  if (s.whole_calls) row->whole_us = whole_call_microseconds(machine, problem, s.run.repeat);
  derive(machine, s, ceilings, row);
}

// Selects a cell; the row's failure is set where it is not supported.
bool select_cell(const PrefillSettings& s, PrefillProblem* problem, PrefillRow* row) {
  const Status status = problem->select(row->cell, row->way, history_of(s.history));
  if (status.ok()) return true;
  row->failure =
      std::string("not supported by ") + backend_name(s.run.backend) + ": " + status.message;
  if (status.code != Code::kUnsupported) row->failure = status.message;
  return false;
}

}  // namespace

PrefillReport measure_prefill(Machine& machine, double start_seconds, const PrefillSettings& s) {
  PrefillReport report{s, utc_now(), sluice_version(), machine.describe(), {}, {}, {}};
  report.first_call.start_ms = 1e3 * start_seconds;
  for (const Cell& cell : s.cells) {
    for (const SplitWay& way : s.ways) {
      PrefillRow& row = report.rows.emplace_back();
      row.cell = cell;
      row.way = way;
      row.peers = s.run.backend == Implementation::kCuda && !s.norm
                      ? peers_of(all_peers(), cell, s.gates, short_dtype(s.run.dtype))
                      : std::vector<PeerTime>();
    }
  }
  show_progress(0, s.cells.size(), "inputs");
  PrefillInputs inputs(s.cells, s.run.dtype, s.gates, s.gate_dtype);
  inputs.norm = s.norm ? QkNorm::kL2 : QkNorm::kNone;
  PrefillProblem problem(machine, inputs, s.cells, s.lengths_known);
  // The very first call of the library, before the ceilings warm anything.
  PrefillRow first;
  for (PrefillRow& row : report.rows) {
    first = row;
    if (!select_cell(s, &problem, &first)) continue;
    report.first_call.first_ms = timed_call_ms(machine, &problem);
    report.first_call.second_ms = timed_call_ms(machine, &problem);
    break;
  }
  report.ceilings = machine.measure_ceilings();
  // WHY timed in vain: what follows the ceilings' matrix products finds lower clocks.
  if (!std::isnan(report.first_call.second_ms)) {
    time_cell(machine, s, report.ceilings, &problem, &first);
  }
  for (size_t i = 0; i < report.rows.size(); ++i) {
    PrefillRow& row = report.rows[i];
    show_progress(i, report.rows.size(),
                  "times " + heads_text(row.cell) + " " + lengths_text(row.cell.lengths) + " " +
                      row.way.name);
    try {
      if (select_cell(s, &problem, &row)) time_cell(machine, s, report.ceilings, &problem, &row);
    } catch (const std::runtime_error& error) {
      row.failure = error.what();
    }
  }
  if (s.errors) measure_errors(machine, inputs, history_of(s.history), &problem, &report.rows);
  show_progress(1, 1, "");
  return report;
}

namespace {

struct PrefillOptions {
  PrefillSettings settings;
  std::vector<std::string> heads, lengths, ways;
  bool sweep = false;
  int64_t K = 128, V = 128;
  bool warm = false;
};

// The cells asked for: --heads x --lengths, each completed from the named grid.
// std::runtime_error says what is wrong.
void choose_cells(const PrefillOptions& options, PrefillSettings* s) {
  const std::vector<Cell> grid = named_grid(s->grid);
  if (options.heads.empty() && options.lengths.empty()) s->cells = grid;
  const std::vector<Cell> heads = all_heads(options.heads);
  const std::vector<std::vector<int64_t>> lengths = all_lengths(options.lengths);
  if (heads.empty() != lengths.empty()) {
    for (const Cell& cell : grid) {
      for (const Cell& pair : heads) {
        if (pair.H == cell.H && pair.HV == cell.HV) s->cells.push_back(cell);
      }
      for (const std::vector<int64_t>& list : lengths) {
        if (list == cell.lengths) s->cells.push_back(cell);
      }
    }
    if (s->cells.empty()) {
      throw std::runtime_error("grid " + s->grid + " has no such cell; give --heads and --lengths");
    }
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
}

// Wrong results before missing ones.
int verdict(const PrefillReport& report) {
  const std::string dtype = short_dtype(report.settings.run.dtype);
  int status = kExitDone;
  for (const PrefillRow& row : report.rows) {
    if (!row.failure.empty()) {
      status = std::max(status,
                        row.failure.rfind("not supported", 0) == 0 ? kExitUnavailable : kExitError);
    } else if (is_wrong(row, dtype)) {
      fmt::print(stderr, "sluice: {} {}: an error is above {:g}\n", heads_text(row.cell),
                 lengths_text(row.cell.lengths), error_limit(dtype));
      return kExitWrong;
    }
  }
  return status;
}

int bench_prefill(PrefillOptions options) {
  PrefillSettings& s = options.settings;
  s.cold = !options.warm;
  choose_cells(options, &s);
  if (options.sweep) s.ways = swept_ways();
  if (!options.ways.empty()) s.ways = all_ways(options.ways);
  if (const std::string reason = unavailable(s.run.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  double start_seconds = kUnknown;
  const std::unique_ptr<Machine> machine = machine_of(s.run.backend, &start_seconds);
  const PrefillReport report = measure_prefill(*machine, start_seconds, s);
  print_prefill(report);
  const int status = write_record(s.run.json, record_text(to_json(report)), kExitDone);
  if (status != kExitDone) return status;
  return s.errors ? verdict(report) : kExitDone;
}

void add_cell_options(CLI::App* command, PrefillOptions* o) {
  add_checked(*command, "--grid", &o->settings.grid,
              fmt::format("{}", fmt::join(grid_names(), ", ")), CLI::IsMember(grid_names()));
  add_list(*command, "--heads", &o->heads,
           "H/HV, several separated by commas; alone: only these of the grid");
  add_list(*command, "--lengths", &o->lengths,
           "of packed sequences, e.g. 8192x4 or 28672+4096; alone: only these of the grid");
  const CLI::Range sizes(1, 1024);
  add_checked(*command, "--K", &o->K, "key dimension", sizes);
  add_checked(*command, "--V", &o->V, "value dimension", sizes);
  add_checked(*command, "--gates", &o->settings.gates,
              "published (a quarter of the heads without decay), slow (-1e-3), flat (0), uniform "
              "(-U(0,1)); one for each channel of k: kda_bounded (-5 sigmoid), kda_slow",
              CLI::IsMember(gate_names()));
  add_dtype_option(*command, &o->settings.run.dtype);
  add_dtype_option(*command, &o->settings.gate_dtype, "--gate-dtype",
                   "store gates and write strengths as f32, bf16 or f16");
  command->add_flag("--norm", o->settings.norm,
                    "q and k through the l2 norm inside, as models call it; no peer is set beside");
  CLI::Option* ways = add_list(*command, "--split", &o->ways,
                               "how sequences are spread over the GPU: auto, never, columns, "
                               "length, or a number of segments; several make several rows");
  command->add_flag("--sweep", o->sweep, "auto beside every forced way")->excludes(ways);
  add_checked(
      *command, "--history", &o->settings.history,
      "whether heads that have forgotten it may drop it (these inputs allow it); auto, as a "
      "call without it, drops nothing here",
      CLI::IsMember(history_names()));
  command->add_flag("!--unknown-lengths", o->settings.lengths_known,
                    "withhold max_tokens, so that the lengths are on the device alone");
}

void add_run_options(CLI::App* command, PrefillOptions* o) {
  PrefillSettings& s = o->settings;
  add_device_option(*command, &s.run.backend);
  add_record_options(*command, "timed calls of each cell", &s.run);
  add_checked(*command, "--rest", &s.rest_ms,
              "milliseconds of idleness before each cell, so that its clocks do not depend on "
              "the cell before",
              CLI::Range(0, 60000));
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
