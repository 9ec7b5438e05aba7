// Puts reports of prefill, decode and layers with key-wise gates into one table, with marks.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/kda_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tools/bench/rows.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

/// Of one H200, milliseconds, with bounded and with slow gates.
struct PrefillMark {
  int64_t HV;
  const char* lengths;
  double mark[2], stretch[2];
};
constexpr PrefillMark kPrefillMarks[] = {
    {12, "8192x1", {.090, .20}, {.075, .15}}, {12, "32768x1", {.28, .60}, {.24, .45}},
    {32, "8192x1", {.20, .40}, {.16, .30}},   {32, "32768x1", {.65, 1.15}, {.52, .95}},
    {32, "8192x4", {.58, .58}, {.46, .46}},   {64, "8192x2", {.58, .58}, {.46, .46}},
    {96, "8192x1", {.60, .60}, {.48, .48}}};

constexpr double kChunkHeadMark = 4.5, kChunkHeadStretch = 3.6;

bool is_slow(const std::string& gates) { return gates == "kda_slow"; }

/// The column of a peer by its name, which may go on with a version; -1: none.
int column_of(const std::string& peer) {
  for (int i = 0; i < kKdaPeerCount; ++i) {
    const std::string name = kKdaPeers[i];
    if (peer == name || peer.rfind(name + " ", 0) == 0) return i;
  }
  return -1;
}

void take_peer(const std::string& peer, double time, KdaRow* row) {
  const int column = column_of(peer);
  if (column < 0 || row->peers[column] <= time) return;
  row->peers[column] = time;
}

void take_mark(const PrefillRow& from, const std::string& gates, KdaRow* row) {
  for (const PrefillMark& mark : kPrefillMarks) {
    if (mark.HV != from.cell.HV || mark.lengths != lengths_text(from.cell.lengths)) continue;
    row->mark = mark.mark[is_slow(gates)], row->stretch = mark.stretch[is_slow(gates)];
  }
}

std::string time_text(const KdaRow& row, double time) {
  return text_of(time, row.unit == "ms" ? 3 : 1);
}

}  // namespace

double KdaRow::ratio() const {
  double best = kUnknown;
  for (const double peer : peers) {
    if (!(best <= peer)) best = std::isnan(peer) ? best : peer;
  }
  return best / time;
}

std::vector<KdaRow> kda_rows(const PrefillReport& report) {
  std::vector<KdaRow> rows;
  for (const PrefillRow& from : report.rows) {
    KdaRow& row = rows.emplace_back();
    row.part = "prefill", row.unit = "ms";
    row.what = fmt::format("{}, {} heads", lengths_text(from.cell.lengths), from.cell.HV);
    row.gates = is_slow(report.gates) ? "slow" : "bounded";
    row.time = from.ms, row.error_o = from.error_o, row.host_us = from.host_us;
    row.kernel = from.kernel, row.failure = from.failure;
    if (report.backend == "cuda") take_mark(from, report.gates, &row);
    for (const PeerTime& peer : from.peers) {
      if (peer.gates == report.gates) take_peer(peer.peer, peer.ms, &row);
    }
  }
  return rows;
}

std::vector<KdaRow> kda_rows(const StepReport& report) {
  std::vector<KdaRow> rows;
  for (const StepRow& from : report.rows) {
    const StepCell& c = from.cell;
    KdaRow& row = rows.emplace_back();
    row.part = c.layer ? "layer" : "decode", row.unit = "us";
    row.what = fmt::format("B {}, {} heads, {} states", c.B, c.HV, c.state);
    if (c.T > 1) row.what += fmt::format(", {} tokens{}", c.T, c.per_token ? ", all kept" : "");
    row.gates = "raw";
    row.time = from.us, row.host_us = from.host_us;
    row.kernel = from.kernel, row.failure = from.failure;
    if (c.goal_us > 0) row.mark = c.goal_us;
    for (const StepPeer& peer : from.peers) take_peer(peer.peer, peer.us, &row);
  }
  return rows;
}

nlohmann::json to_json(const KdaReport& report) {
  nlohmann::json out = {{"schema", "sluice.bench.kda/1"},
                        {"date", report.date},
                        {"sluice", report.version},
                        {"commit", report.commit},
                        {"command", report.command},
                        {"machine", report.machine},
                        {"us_per_chunk_head", number_or_null(report.us_per_chunk_head)},
                        {"us_per_chunk_head_mark", kChunkHeadMark},
                        {"us_per_chunk_head_stretch", kChunkHeadStretch},
                        {"rows", nlohmann::json::array()},
                        {"reports", report.reports}};
  for (const KdaRow& row : report.rows) {
    nlohmann::json entry = {{"part", row.part},
                            {"what", row.what},
                            {"gates", row.gates},
                            {"unit", row.unit},
                            {"time", number_or_null(row.time)},
                            {"mark", number_or_null(row.mark)},
                            {"stretch", number_or_null(row.stretch)},
                            {"ratio_to_best_peer", number_or_null(row.ratio())},
                            {"error_o", number_or_null(row.error_o)},
                            {"host_us", number_or_null(row.host_us)},
                            {"kernel", row.kernel},
                            {"failure", row.failure}};
    for (int i = 0; i < kKdaPeerCount; ++i) {
      entry["peers"][kKdaPeers[i]] = number_or_null(row.peers[i]);
    }
    out["rows"].push_back(std::move(entry));
  }
  return out;
}

void print_kda(const KdaReport& report) {
  fmt::print("{}, sluice {} ({}), {}\n", report.machine.value("name", "?"), report.version,
             report.commit, report.date);
  Table table({"<part", "<shape", "<gates", "time", "<unit", "mark", "of mark", "stretch", "cuDNN",
               "FlashKDA", "FLA", "x best", "err o", "host us", "<kernel"});
  for (const KdaRow& row : report.rows) {
    if (!row.failure.empty()) continue;
    table.add({row.part, row.what, row.gates, time_text(row, row.time), row.unit,
               time_text(row, row.mark), text_of(row.time / row.mark, 2),
               time_text(row, row.stretch), time_text(row, row.peers[0]),
               time_text(row, row.peers[1]), time_text(row, row.peers[2]), text_of(row.ratio(), 2),
               std::isnan(row.error_o) ? "-" : error_text(row.error_o), text_of(row.host_us, 1),
               row.kernel});
  }
  table.print();
  for (const KdaRow& row : report.rows) {
    if (row.failure.empty()) continue;
    fmt::print("{} {}, {} gates: {}\n", row.part, row.what, row.gates, row.failure);
  }
  if (!std::isnan(report.us_per_chunk_head)) {
    fmt::print(
        "{:.2f} us a chunk of 64 tokens and head, 8192x4 with 32 heads (mark {}, stretch {}).\n",
        report.us_per_chunk_head, kChunkHeadMark, kChunkHeadStretch);
  }
  fmt::print(
      "Cold caches, medians; initial and final states; of mark: time over mark. Peers: measured on "
      "an H200 with these\ninputs in one process, not in this run (benchmarks/peers/README.md). x "
      "best: time of the fastest peer over ours.\n");
}

}  // namespace sluice::tools
