// Times one prefill cell, on the device and on the host.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/prefill_report.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tools/bench/bench.hpp"
#include "tools/bench/rows.hpp"
#include "tools/call.hpp"
#include "tools/commands.hpp"

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
  const int64_t element_bytes = s.dtype.bits / 8;
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
  const CallTimes times = machine.time_calls([&] { problem->call(); }, s.repeat, s.cold);
  const Quantiles ms(times.seconds, 1e3);
  row->ms = ms.median, row->ms_min = ms.least, row->ms_p90 = ms.p90;
  if (times.clock_mhz > 0) row->clock_mhz = times.clock_mhz;
  if (!host) row->host_us = host_microseconds(machine, kHostCalls, [&](int) { problem->call(); });
  if (s.whole_calls) row->whole_us = whole_call_microseconds(machine, problem, s.repeat);
  derive(machine, s, ceilings, row);
}

// Selects a cell; the row's failure is set where it is not supported.
bool select_cell(const PrefillSettings& s, PrefillProblem* problem, PrefillRow* row) {
  const Status status = problem->select(row->cell, row->way, history_of(s.history));
  if (status.ok()) return true;
  row->failure = std::string("not supported by ") + backend_name(s.backend) + ": " + status.message;
  if (status.code != Code::kUnsupported) row->failure = status.message;
  return false;
}

PrefillReport empty_report(const Machine& machine, const PrefillSettings& s) {
  PrefillReport report;
  report.date = utc_now();
  report.version = sluice_version();
  report.commit = s.commit;
  report.command = s.command;
  report.grid = s.grid;
  report.gates = s.gates;
  report.dtype = short_dtype(s.dtype);
  report.gate_dtype = short_dtype(s.gate_dtype);
  report.backend = backend_name(s.backend);
  report.machine = machine.describe();
  report.repeat = s.repeat;
  report.rest_ms = s.rest_ms;
  report.history = s.history;
  report.cold = s.cold;
  report.lengths_known = s.lengths_known;
  report.norm = s.norm;
  return report;
}

}  // namespace

PrefillReport measure_prefill(Machine& machine, double start_seconds, const PrefillSettings& s) {
  PrefillReport report = empty_report(machine, s);
  report.first_call.start_ms = 1e3 * start_seconds;
  for (const Cell& cell : s.cells) {
    for (const SplitWay& way : s.ways) {
      PrefillRow& row = report.rows.emplace_back();
      row.cell = cell;
      row.way = way;
      row.peers = s.backend == Implementation::kCuda && !s.norm
                      ? peers_of(all_peers(), cell, s.gates, report.dtype)
                      : std::vector<PeerTime>();
    }
  }
  show_progress(0, s.cells.size(), "inputs");
  PrefillInputs inputs(s.cells, s.dtype, s.gates, s.gate_dtype);
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

}  // namespace sluice::tools
