// Draws the table of `sluice bench kda` as an SVG.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tools/bench/kda_report.hpp"

namespace sluice::tools {
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
