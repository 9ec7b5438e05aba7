// Writes prefill rows as JSON, and prints them as a table for the terminal.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/prefill_report.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>

#include "tools/bench/rows.hpp"
#include "tools/commands.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kSchema = "sluice.bench.prefill/1";

nlohmann::json to_json(const PeerTime& peer) {
  return {{"peer", peer.peer},
          {"source", peer.source},
          {"gates", peer.gates},
          {"dtype", peer.dtype},
          {"ms", peer.ms}};
}

nlohmann::json to_json(const PrefillRow& row) {
  nlohmann::json out = {{"H", row.cell.H},
                        {"HV", row.cell.HV},
                        {"K", row.cell.K},
                        {"V", row.cell.V},
                        {"lengths", lengths_text(row.cell.lengths)},
                        {"goal_ms", row.cell.goal_ms > 0 ? row.cell.goal_ms : kUnknown},
                        {"split", row.way.name},
                        {"segments", row.segments},
                        {"kernel", row.kernel},
                        {"failure", row.failure},
                        {"ms", row.ms},
                        {"ms_min", row.ms_min},
                        {"ms_p90", row.ms_p90},
                        {"host_us", row.host_us},
                        {"call_us", row.whole_us},
                        {"clock_mhz", row.clock_mhz},
                        {"us_per_chunk_head", row.us_per_chunk_head},
                        {"tflops", row.tflops},
                        {"gb_per_s", row.gb_per_s},
                        {"floor_ms", row.floor_ms},
                        {"floor", row.memory_floor ? "memory" : "arithmetic"},
                        {"share_of_floor", row.floor_ms / row.ms},
                        {"error_o", row.error_o},
                        {"error_state", row.error_state},
                        {"ratio_to_best_peer", row.ratio()},
                        {"peers", nlohmann::json::array()}};
  for (const PeerTime& peer : row.peers) out["peers"].push_back(to_json(peer));
  return out;
}

/// The rows where the library chose the way, or all if none is among them.
std::vector<PrefillRow> own_choices(const std::vector<PrefillRow>& rows) {
  std::vector<PrefillRow> out;
  for (const PrefillRow& row : rows) {
    if (row.way.split == Split::kAuto) out.push_back(row);
  }
  return out.empty() ? rows : out;
}

}  // namespace

PeerSummary summary_of(const std::vector<PrefillRow>& rows) {
  PeerSummary out;
  double logarithms = 0;
  for (const PrefillRow& row : own_choices(rows)) {
    if (std::isnan(row.ratio())) continue;
    ++out.compared;
    out.slower += row.ratio() < 1 ? 1 : 0;
    logarithms += std::log(row.ratio());
  }
  if (out.compared > 0) out.mean = std::exp(logarithms / out.compared);
  return out;
}

ChoiceSummary choices_of(const std::vector<PrefillRow>& rows) {
  constexpr double kWithin = 0.95;
  ChoiceSummary out;
  for (const PrefillRow& own : rows) {
    if (own.way.split != Split::kAuto || std::isnan(own.ms)) continue;
    double best = kUnknown;
    for (const PrefillRow& forced : rows) {
      const bool same = heads_text(forced.cell) == heads_text(own.cell) &&
                        forced.cell.lengths == own.cell.lengths;
      if (same && forced.way.split != Split::kAuto && !(forced.ms >= best)) best = forced.ms;
    }
    if (std::isnan(best)) continue;
    ++out.cells;
    out.within += best / own.ms >= kWithin ? 1 : 0;
    if (out.worst <= best / own.ms) continue;
    out.worst = best / own.ms;
    out.worst_cell = heads_text(own.cell) + " " + lengths_text(own.cell.lengths);
  }
  return out;
}

double error_limit(const std::string& dtype) {
  return dtype == "bf16" ? 1e-2 : dtype == "fp16" ? 2e-3 : 1e-4;
}

bool is_wrong(const PrefillRow& row, const std::string& dtype) {
  const double limit = error_limit(dtype);
  return !(row.error_o <= limit) || !(row.error_state <= limit);
}

nlohmann::json to_json(const PrefillReport& report) {
  const PrefillSettings& s = report.settings;
  const PeerSummary summary = summary_of(report.rows);
  const ChoiceSummary choices = choices_of(report.rows);
  nlohmann::json out = {{"schema", kSchema},
                        {"date", report.date},
                        {"sluice", report.version},
                        {"commit", s.run.commit},
                        {"command", s.command},
                        {"backend", backend_name(s.run.backend)},
                        {"machine", report.machine},
                        {"settings",
                         {{"grid", s.grid},
                          {"gates", s.gates},
                          {"dtype", short_dtype(s.run.dtype)},
                          {"gate_dtype", short_dtype(s.gate_dtype)},
                          {"norm", s.norm},
                          {"history", s.history},
                          {"max_tokens", s.lengths_known ? "given" : "withheld"},
                          {"repeat", s.run.repeat},
                          {"rest_ms", s.rest_ms},
                          {"caches", s.cold ? "cold" : "warm"}}},
                        {"ceilings",
                         {{"flop_per_second", report.ceilings.flop_per_second},
                          {"flop_source", report.ceilings.flop_source},
                          {"bytes_per_second", report.ceilings.bytes_per_second},
                          {"bytes_source", report.ceilings.bytes_source}}},
                        {"first_call",
                         {{"start_ms", report.first_call.start_ms},
                          {"first_ms", report.first_call.first_ms},
                          {"second_ms", report.first_call.second_ms}}},
                        {"summary",
                         {{"cells_with_peers", summary.compared},
                          {"cells_slower_than_best_peer", summary.slower},
                          {"geometric_mean_ratio", summary.mean},
                          {"cells_with_forced_ways", choices.cells},
                          {"choices_within_5_percent", choices.within},
                          {"worst_choice", choices.worst},
                          {"worst_choice_cell", choices.worst_cell}}},
                        {"rows", nlohmann::json::array()}};
  for (const PrefillRow& row : report.rows) out["rows"].push_back(to_json(row));
  return out;
}

namespace {

/// A rate with `digits` digits, or with none from 10 on.
Column rate(const char* head, const char* key, int digits) {
  return {head, [=](const nlohmann::json& row) {
            const double value = number_in(row, key);
            return text_of(value, value < 10 ? digits : 0);
          }};
}

std::vector<Column> columns_of(const PrefillReport& report) {
  const auto segments = [](const nlohmann::json& row) {
    return text_of(row["segments"] > 0 ? number_in(row, "segments") : kUnknown, 0);
  };
  const auto of_floor = [](const nlohmann::json& row) {
    return text_of(100 * number_in(row, "share_of_floor"), 0) +
           (row["floor"] == "memory" ? "% mem" : "% math");
  };
  const auto peer = [gates = report.settings.gates](const nlohmann::json& row) {
    return best_peer(row) + (row["peers"].empty() || row["peers"][0]["gates"] == gates ? "" : " *");
  };
  return {{"<heads", heads().text},        word("<lengths", "lengths"),
          word("<split", "split"),         {"seg", segments},
          number("ms", "ms", 4),           number("min", "ms_min", 4),
          number("p90", "ms_p90", 4),      number("us/chunk", "us_per_chunk_head", 2),
          rate("TFLOP/s", "tflops", 3),    rate("GB/s", "gb_per_s", 2),
          {"of floor", of_floor},          error("err o", "error_o"),
          error("err S", "error_state"),   number("host us", "host_us", 1),
          number("call us", "call_us", 1), {"<best peer", peer},
          peer_time("peer ms", "ms", 3),   number("x peer", "ratio_to_best_peer", 2),
          number("goal", "goal_ms", 3),    kernel()};
}

void print_legend(const PrefillReport& report) {
  const PrefillSettings& s = report.settings;
  fmt::print(
      "ms: median of {} in a row after {} ms of rest{}; least; 9th decile. us/chunk: ms over "
      "the chunks of the busiest {} if whole (sequence, head)\nunits are dealt out. floor: the "
      "larger of {:.3g} TFLOP/s ({}) and {:.0f} GB/s ({}).\n",
      counted(s.run.repeat, "call"), s.rest_ms,
      s.cold ? ", caches full of other data" : ", caches warm",
      s.run.backend == Implementation::kCuda ? "multiprocessor" : "thread",
      report.ceilings.flop_per_second * 1e-12, report.ceilings.flop_source,
      report.ceilings.bytes_per_second * 1e-9, report.ceilings.bytes_source);
  fmt::print(
      "error: relative L2 of o and of final states against float64, worst of some (sequence, head) "
      "pairs. host us: until\na call returns; call us: until its results are there (--host). "
      "Peers: published or measured elsewhere on an H200, not in this run "
      "(benchmarks/peers/README.md).\n");
  const bool other_gates =
      std::any_of(report.rows.begin(), report.rows.end(), [&](const PrefillRow& row) {
        return !row.peers.empty() && row.peers.front().gates != s.gates;
      });
  if (other_gates) fmt::print("* timed with other gates than --gates {}.\n", s.gates);
}

}  // namespace

void print_prefill(const PrefillReport& report) {
  const PrefillSettings& s = report.settings;
  fmt::print("{}, sluice {} ({}), {}, gates {}, history {}, longest sequence {}, {}\n",
             report.machine.value("name", "?"), report.version, s.run.commit,
             short_dtype(s.run.dtype), s.gates, s.history, s.lengths_known ? "known" : "unknown",
             report.date);
  print_results(columns_of(report), to_json(report).at("rows"), [](const nlohmann::json& row) {
    return fmt::format("{} {} {}", heads().text(row), row["lengths"].get<std::string>(),
                       row["split"].get<std::string>());
  });
  print_legend(report);
  const FirstCall& first = report.first_call;
  if (!std::isnan(first.first_ms)) {
    fmt::print(
        "First call of the process {:.3g} ms, the second {:.3g} ms (difference {:.3g} ms).\n",
        first.first_ms, first.second_ms, first.first_ms - first.second_ms);
  }
  const PeerSummary summary = summary_of(report.rows);
  if (summary.compared > 0) {
    fmt::print("{} of {} slower than the best peer; geometric mean of ratios {:.3f}.\n",
               summary.slower, counted(summary.compared, "cell"), summary.mean);
  }
  const ChoiceSummary choices = choices_of(report.rows);
  if (choices.cells > 0) {
    fmt::print(
        "{} of {} within 5 % of the best forced way; the worst reaches {:.3f} of it "
        "({}).\n",
        choices.within, counted(choices.cells, "choice"), choices.worst, choices.worst_cell);
  }
}

}  // namespace sluice::tools
