// Puts reports of prefill, decode and layers with key-wise gates into one table, with marks, and draws it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/kda_report.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>

#include "tools/bench/rows.hpp"
#include "tools/terminal.hpp"

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
    row.what =
        fmt::format("{}, {}", lengths_text(from.cell.lengths), counted(from.cell.HV, "head"));
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
    row.what = fmt::format("B {}, {}, {} states", c.B, counted(c.HV, "head"), c.state);
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

namespace {

// Pixels.
constexpr int kLabels = 360, kAxis = 520, kRight = 90, kTop = 64, kBar = 9, kGap = 10;
constexpr int kFigureWidth = kLabels + kAxis + kRight;
constexpr const char* kClasses[] = {"ours", "peer0", "peer1", "peer2"};

/// Text and lines take the page's colours; bars are told apart on both.
constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#24292f}.axis{stroke:#8c959f}.mark{stroke:#24292f;"
    "stroke-width:2}.ours{fill:#0969da}.peer0{fill:#bf8700}.peer1{fill:#8250df}.peer2{fill:#6e7781}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#6e7681}.mark{stroke:#e6edf3}"
    ".ours{fill:#58a6ff}.peer0{fill:#d29922}.peer1{fill:#bc8cff}.peer2{fill:#8b949e}}</style>";

double microseconds(const KdaRow& row, double time) { return row.unit == "ms" ? 1e3 * time : time; }

/// A logarithmic axis over all times.
struct Axis {
  double low = 1e9, high = 0;

  explicit Axis(const std::vector<KdaRow>& rows) {
    for (const KdaRow& row : rows) {
      take(microseconds(row, row.time));
      take(microseconds(row, row.mark));
      for (const double peer : row.peers) take(microseconds(row, peer));
    }
    low = std::pow(10.0, std::floor(std::log10(std::min(low, 1e8))));
    high = std::pow(10.0, std::ceil(std::log10(std::max(high, 10 * low))));
  }
  void take(double us) {
    if (!(us > 0)) return;
    low = std::min(low, us), high = std::max(high, us);
  }
  double x(double us) const { return kLabels + kAxis * std::log(us / low) / std::log(high / low); }
};

std::string decade_text(double us) {
  return us < 1e3 ? fmt::format("{:g} us", us) : fmt::format("{:g} ms", us * 1e-3);
}

void add_axis(const Axis& axis, int bottom, std::string* svg) {
  for (double us = axis.low; us <= 1.001 * axis.high; us *= 10) {
    *svg += fmt::format(
        "<line class='axis' x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}'/><text x='{0:.1f}' "
        "y='{3}' text-anchor='middle'>{4}</text>\n",
        axis.x(us), kTop - 6, bottom, kTop - 12, decade_text(us));
  }
}

void add_legend(std::string* svg) {
  const char* const names[] = {"Sluice", kKdaPeers[0], kKdaPeers[1], kKdaPeers[2]};
  for (int i = 0; i < 4; ++i) {
    const int x = kLabels + 100 * i;
    *svg += fmt::format(
        "<rect class='{}' x='{}' y='10' width='12' height='12'/><text x='{}' y='20'>{}</text>\n",
        kClasses[i], x, x + 18, names[i]);
  }
  *svg += fmt::format(
      "<line class='mark' x1='{0}' y1='9' x2='{0}' y2='23'/><text x='{1}' y='20'>mark</text>\n",
      kLabels + 406, kLabels + 414);
}

void add_bar(const Axis& axis, const char* look, int y, double us, const std::string& text,
             std::string* svg) {
  const double end = axis.x(us);
  *svg += fmt::format(
      "<rect class='{}' x='{}' y='{}' width='{:.1f}' height='{}'/><text x='{:.1f}' y='{}' "
      "style='font-size:9px'>{}</text>\n",
      look, kLabels, y, end - kLabels, kBar - 1, end + 4, y + kBar - 1, text);
}

/// The row's label, bars and mark; returns where the next row starts.
int add_row(const Axis& axis, const KdaRow& row, int y, std::string* svg) {
  const int top = y;
  const auto add = [&](const char* look, double time) {
    if (!(time > 0)) return;
    const std::string text = fmt::format("{:.3g} {}", time, row.unit);
    add_bar(axis, look, y, microseconds(row, time), text, svg);
    y += kBar;
  };
  add(kClasses[0], row.time);
  for (int i = 0; i < kKdaPeerCount; ++i) add(kClasses[i + 1], row.peers[i]);
  *svg += fmt::format("<text x='{}' y='{}' text-anchor='end'>{} {}, {}</text>\n", kLabels - 8,
                      top + 9, row.part, row.what, row.gates);
  if (row.mark > 0) {
    const double x = axis.x(microseconds(row, row.mark));
    *svg += fmt::format("<line class='mark' x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}'/>\n", x,
                        top - 2, y + 1);
  }
  return std::max(y, top + 14) + kGap;
}

}  // namespace

std::string kda_figure(const KdaReport& report) {
  const Axis axis(report.rows);
  std::string bars;
  int y = kTop;
  for (const KdaRow& row : report.rows) {
    if (row.failure.empty()) y = add_row(axis, row, y, &bars);
  }
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}'>\n"
      "<title>Key-wise gates on {2}: times of Sluice and of its peers</title>\n{3}\n",
      kFigureWidth, y + 8, report.machine.value("name", "?"), kStyle);
  add_legend(&svg);
  add_axis(axis, y - kGap, &svg);
  return svg + bars + "</svg>\n";
}

}  // namespace sluice::tools
