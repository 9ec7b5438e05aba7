// Prints prefill rows as a table for the terminal.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tools/bench/prefill_report.hpp"
#include "tools/bench/rows.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

std::string error_cell(double error) { return std::isnan(error) ? "-" : error_text(error); }

std::vector<std::string> cells_of(const PrefillRow& row, const PrefillReport& report) {
  std::string peer = "-";
  double peer_ms = kUnknown;
  if (!row.peers.empty()) {
    const PeerTime& best = row.peers.front();
    peer = best.peer + (best.gates == report.gates ? "" : " *");
    peer_ms = best.ms;
  }
  return {heads_text(row.cell),
          lengths_text(row.cell.lengths),
          row.way.name,
          row.segments > 0 ? fmt::format("{}", row.segments) : "-",
          text_of(row.ms, 4),
          text_of(row.ms_min, 4),
          text_of(row.ms_p90, 4),
          text_of(row.us_per_chunk_head, 2),
          text_of(row.tflops, row.tflops < 10 ? 3 : 0),
          text_of(row.gb_per_s, row.gb_per_s < 10 ? 2 : 0),
          text_of(100 * row.floor_ms / row.ms, 0) + (row.memory_floor ? "% mem" : "% math"),
          error_cell(row.error_o),
          error_cell(row.error_state),
          text_of(row.host_us, 1),
          text_of(row.whole_us, 1),
          peer,
          text_of(peer_ms, 3),
          text_of(row.ratio(), 2),
          row.cell.goal_ms > 0 ? text_of(row.cell.goal_ms, 3) : "-",
          row.kernel};
}

void print_legend(const PrefillReport& report) {
  const bool cuda = report.backend == "cuda";
  fmt::print(
      "ms: median of {} calls in a row after {} ms of rest{}; least; 9th decile. us/chunk: ms over "
      "the chunks of the busiest {} if "
      "whole "
      "(sequence, head)\nunits are dealt out. floor: the larger of {:.3g} TFLOP/s ({}) and {:.0f} "
      "GB/s ({}).\n",
      report.repeat, report.rest_ms, report.cold ? ", caches full of other data" : ", caches warm",
      cuda ? "multiprocessor" : "thread", report.ceilings.flop_per_second * 1e-12,
      report.ceilings.flop_source, report.ceilings.bytes_per_second * 1e-9,
      report.ceilings.bytes_source);
  fmt::print(
      "error: relative L2 of o and of final states against float64, worst of some (sequence, head) "
      "pairs. host us: until\na call returns; call us: until its results are there (--host). "
      "Peers: published or measured elsewhere on an H200, "
      "not "
      "in this run (benchmarks/peers/README.md).\n");
  const bool other_gates =
      std::any_of(report.rows.begin(), report.rows.end(), [&](const PrefillRow& row) {
        return !row.peers.empty() && row.peers.front().gates != report.gates;
      });
  if (other_gates) fmt::print("* timed with other gates than --gates {}.\n", report.gates);
}

}  // namespace

void print_prefill(const PrefillReport& report) {
  fmt::print("{}, sluice {} ({}), {}, gates {}, history {}, longest sequence {}, {}\n",
             report.machine.value("name", "?"), report.version, report.commit, report.dtype,
             report.gates, report.history, report.lengths_known ? "known" : "unknown", report.date);
  Table table({"<heads",   "<lengths",   "<split",  "seg",      "ms",    "min",    "p90",
               "us/chunk", "TFLOP/s",    "GB/s",    "of floor", "err o", "err S",  "host us",
               "call us",  "<best peer", "peer ms", "x peer",   "goal",  "<kernel"});
  for (const PrefillRow& row : report.rows) {
    if (row.failure.empty()) table.add(cells_of(row, report));
  }
  table.print();
  for (const PrefillRow& row : report.rows) {
    if (row.failure.empty()) continue;
    fmt::print("{} {} {}: {}\n", heads_text(row.cell), lengths_text(row.cell.lengths), row.way.name,
               row.failure);
  }
  print_legend(report);
  const FirstCall& first = report.first_call;
  if (!std::isnan(first.first_ms)) {
    fmt::print(
        "First call of the process {:.3g} ms, the second {:.3g} ms (difference {:.3g} ms).\n",
        first.first_ms, first.second_ms, first.first_ms - first.second_ms);
  }
  const PeerSummary summary = summary_of(report.rows);
  if (summary.compared > 0) {
    fmt::print("{} of {} cells slower than the best peer; geometric mean of ratios {:.3f}.\n",
               summary.slower, summary.compared, summary.mean);
  }
  const ChoiceSummary choices = choices_of(report.rows);
  if (choices.cells > 0) {
    fmt::print(
        "{} of {} choices within 5 % of the best forced way; the worst reaches {:.3f} of it "
        "({}).\n",
        choices.within, choices.cells, choices.worst, choices.worst_cell);
  }
}

}  // namespace sluice::tools
