// Puts reports of prefill, decode and layers with key-wise gates into one table, with marks, and draws it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/kda_report.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <utility>

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

/// A row of the record with what both kinds of reports have. `peers`: pairs of name and time.
nlohmann::json row_of(const std::string& unit, double time, double host_us,
                      const std::vector<std::pair<std::string, double>>& peers) {
  nlohmann::json row = {{"unit", unit},     {"time", time},        {"host_us", host_us},
                        {"mark", kUnknown}, {"stretch", kUnknown}, {"error_o", kUnknown}};
  double least[kKdaPeerCount] = {kUnknown, kUnknown, kUnknown}, best = kUnknown;
  for (const auto& [peer, peer_time] : peers) {
    const int column = column_of(peer);
    if (column < 0 || least[column] <= peer_time) continue;
    least[column] = peer_time;
    if (!(best <= peer_time)) best = peer_time;
  }
  for (int i = 0; i < kKdaPeerCount; ++i) row["peers"][kKdaPeers[i]] = least[i];
  row["ratio_to_best_peer"] = best / time;
  return row;
}

void take_mark(const PrefillRow& from, const std::string& gates, nlohmann::json* row) {
  for (const PrefillMark& mark : kPrefillMarks) {
    if (mark.HV != from.cell.HV || mark.lengths != lengths_text(from.cell.lengths)) continue;
    (*row)["mark"] = mark.mark[is_slow(gates)], (*row)["stretch"] = mark.stretch[is_slow(gates)];
  }
}

}  // namespace

std::vector<nlohmann::json> kda_rows(const PrefillReport& report) {
  const std::string& gates = report.settings.gates;
  std::vector<nlohmann::json> rows;
  for (const PrefillRow& from : report.rows) {
    std::vector<std::pair<std::string, double>> peers;
    for (const PeerTime& peer : from.peers) {
      if (peer.gates == gates) peers.emplace_back(peer.peer, peer.ms);
    }
    nlohmann::json& row = rows.emplace_back(row_of("ms", from.ms, from.host_us, peers));
    const std::string heads = counted(from.cell.HV, "head");
    row.update({{"part", "prefill"},
                {"what", fmt::format("{}, {}", lengths_text(from.cell.lengths), heads)},
                {"gates", is_slow(gates) ? "slow" : "bounded"},
                {"error_o", from.error_o},
                {"kernel", from.kernel},
                {"failure", from.failure}});
    if (report.settings.run.backend == Implementation::kCuda) take_mark(from, gates, &row);
  }
  return rows;
}

std::vector<nlohmann::json> kda_rows(const StepReport& report) {
  std::vector<nlohmann::json> rows;
  for (const StepRow& from : report.rows) {
    const StepCell& c = from.cell;
    std::vector<std::pair<std::string, double>> peers;
    for (const StepPeer& peer : from.peers) peers.emplace_back(peer.peer, peer.us);
    std::string what = fmt::format("B {}, {}, {} states", c.B, counted(c.HV, "head"), c.state);
    if (c.T > 1) what += fmt::format(", {} tokens{}", c.T, c.per_token ? ", all kept" : "");
    nlohmann::json& row = rows.emplace_back(row_of("us", from.us, from.host_us, peers));
    row.update({{"part", c.layer ? "layer" : "decode"},
                {"what", what},
                {"gates", "raw"},
                {"kernel", from.kernel},
                {"failure", from.failure}});
    if (c.goal_us > 0) row["mark"] = c.goal_us;
  }
  return rows;
}

nlohmann::json to_json(const KdaReport& report) {
  return {{"schema", "sluice.bench.kda/1"},
          {"date", report.date},
          {"sluice", report.version},
          {"commit", report.commit},
          {"command", report.command},
          {"machine", report.machine},
          {"us_per_chunk_head", report.us_per_chunk_head},
          {"us_per_chunk_head_mark", kChunkHeadMark},
          {"us_per_chunk_head_stretch", kChunkHeadStretch},
          {"rows", report.rows},
          {"reports", report.reports}};
}

namespace {

/// A time in the row's unit, which the row itself has or its object `inside`.
Column time_column(const char* head, const char* key, const char* inside = nullptr) {
  return {head, [=](const nlohmann::json& row) {
            return text_of(number_in(inside == nullptr ? row : row.at(inside), key),
                           row["unit"] == "ms" ? 3 : 1);
          }};
}

}  // namespace

void print_kda(const KdaReport& report) {
  fmt::print("{}, sluice {} ({}), {}\n", report.machine.value("name", "?"), report.version,
             report.commit, report.date);
  const auto of_mark = [](const nlohmann::json& row) {
    return text_of(number_in(row, "time") / number_in(row, "mark"), 2);
  };
  std::vector<Column> columns = {word("<part", "part"),   word("<shape", "what"),
                                 word("<gates", "gates"), time_column("time", "time"),
                                 word("<unit", "unit"),   time_column("mark", "mark"),
                                 {"of mark", of_mark},    time_column("stretch", "stretch")};
  for (const char* peer : kKdaPeers) columns.push_back(time_column(peer, peer, "peers"));
  for (const Column& column : {number("x best", "ratio_to_best_peer", 2), error("err o", "error_o"),
                               number("host us", "host_us", 1), kernel()}) {
    columns.push_back(column);
  }
  print_results(columns, report.rows, [](const nlohmann::json& row) {
    return fmt::format("{} {}, {} gates", row["part"].get<std::string>(),
                       row["what"].get<std::string>(), row["gates"].get<std::string>());
  });
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

double microseconds(const nlohmann::json& row, double time) {
  return row["unit"] == "ms" ? 1e3 * time : time;
}

/// A logarithmic axis over all times.
struct Axis {
  double low = 1e9, high = 0;

  explicit Axis(const std::vector<nlohmann::json>& rows) {
    for (const nlohmann::json& row : rows) {
      take(microseconds(row, number_in(row, "time")));
      take(microseconds(row, number_in(row, "mark")));
      for (const char* peer : kKdaPeers) take(microseconds(row, number_in(row["peers"], peer)));
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
int add_row(const Axis& axis, const nlohmann::json& row, int y, std::string* svg) {
  const int top = y;
  const auto add = [&](const char* look, double time) {
    if (!(time > 0)) return;
    const std::string text = fmt::format("{:.3g} {}", time, row["unit"].get<std::string>());
    add_bar(axis, look, y, microseconds(row, time), text, svg);
    y += kBar;
  };
  add(kClasses[0], number_in(row, "time"));
  for (int i = 0; i < kKdaPeerCount; ++i) {
    add(kClasses[i + 1], number_in(row["peers"], kKdaPeers[i]));
  }
  *svg += fmt::format("<text x='{}' y='{}' text-anchor='end'>{} {}, {}</text>\n", kLabels - 8,
                      top + 9, row["part"].get<std::string>(), row["what"].get<std::string>(),
                      row["gates"].get<std::string>());
  if (const double mark = number_in(row, "mark"); mark > 0) {
    const double x = axis.x(microseconds(row, mark));
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
  for (const nlohmann::json& row : report.rows) {
    if (row["failure"] == "") y = add_row(axis, row, y, &bars);
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
