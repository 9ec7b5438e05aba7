// Draws prefill rows as a figure: bars for a few cells, dots and a heat map for many.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/bench/prefill_report.hpp"
#include "tools/bench/svg.hpp"

namespace sluice::tools {
namespace {

constexpr double kWidth = 960, kMargin = 24;
// More cells than this are dots and a heat map, fewer are bars.
constexpr size_t kMostBars = 24;
// Upper ends of the heat classes h0 to h5; h6 is open.
constexpr std::array<double, 6> kHeatSteps = {0.9, 1.0, 1.1, 1.25, 1.5, 2.0};

std::string tip_of(const PrefillRow& row) {
  std::string tip = fmt::format("{} {}: ", heads_text(row.cell), lengths_text(row.cell.lengths));
  if (!row.failure.empty()) return tip + row.failure;
  tip += fmt::format("{:.4g} ms", row.ms);
  if (!row.peers.empty()) {
    tip += fmt::format(", {} {:.4g} ms", row.peers.front().peer, row.peers.front().ms);
  }
  return tip;
}

const char* side_class(double ratio) {
  return std::isnan(ratio) ? "unknown" : ratio < 1 ? "behind" : "ahead";
}

// Values in order of their first appearance.
template <class Key>
std::vector<std::string> distinct(const std::vector<PrefillRow>& rows, Key key) {
  std::vector<std::string> out;
  for (const PrefillRow& row : rows) {
    const std::string value = key(row.cell);
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  return out;
}

double highest_ratio(const std::vector<PrefillRow>& rows) {
  double highest = 1.25;
  for (const PrefillRow& row : rows) {
    if (row.ratio() > highest) highest = row.ratio();
    if (row.cell.goal_ms > 0 && !row.peers.empty()) {
      highest = std::max(highest, row.peers.front().ms / row.cell.goal_ms);
    }
  }
  return highest;
}

// Returns the y below the heading.
double draw_heading(const PrefillReport& report, Svg* svg) {
  svg->text(kMargin, 30, "Gated DeltaNet prefill: time of the best peer / time of Sluice", "title");
  svg->text(kMargin, 54,
            fmt::format("{}, {}, gates {}, {} caches, median of {}; sluice {} ({}), {}",
                        report.machine.value("name", "?"), report.dtype, report.gates,
                        report.cold ? "cold" : "warm", report.repeat, report.version, report.commit,
                        report.date.substr(0, 10)),
            "faint");
  const PeerSummary summary = summary_of(report.rows);
  svg->text(kMargin, 74,
            summary.compared == 0
                ? "No peer's time is known for these cells."
                : fmt::format("Above 1 Sluice is faster. {} of {} cells slower than the best peer, "
                              "geometric mean {:.2f}. Peers: published or measured elsewhere.",
                              summary.slower, summary.compared, summary.mean),
            "faint");
  return 98;
}

// Vertical lines at ratios, labelled at the top; x_of maps a ratio.
template <class Map>
void draw_ratio_axis(const std::vector<double>& ticks, double top, double bottom, Map x_of,
                     Svg* svg) {
  for (const double tick : ticks) {
    svg->line(x_of(tick), top + 14, x_of(tick), bottom, tick == 1.0 ? "one" : "grid");
    svg->text(x_of(tick), top + 4, fmt::format("{:g}", tick), "faint", "middle");
  }
}

double draw_bars(const PrefillReport& report, double top, Svg* svg) {
  constexpr double kRow = 28, kLeft = 190, kRight = 610;
  const double most = std::ceil(4 * highest_ratio(report.rows)) / 4;
  const auto x_of = [&](double ratio) { return kLeft + (kRight - kLeft) * ratio / most; };
  const double first = top + 22, bottom = first + kRow * static_cast<double>(report.rows.size());
  std::vector<double> ticks;
  const double step = most <= 2.5 ? 0.25 : most <= 5 ? 0.5 : 1.0;
  for (double tick = 0; tick <= most + 1e-9; tick += step) ticks.push_back(tick);
  draw_ratio_axis(ticks, top, bottom, x_of, svg);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const PrefillRow& row = report.rows[i];
    const double y = first + kRow * static_cast<double>(i), middle = y + kRow / 2;
    svg->text(kLeft - 110, middle, heads_text(row.cell), "", "end");
    svg->text(kLeft - 12, middle, lengths_text(row.cell.lengths), "", "end");
    std::string label = row.failure.empty() ? fmt::format("{:.3f} ms", row.ms) : "not run";
    double end = x_of(0);
    if (!std::isnan(row.ratio())) {
      end = x_of(row.ratio());
      svg->rectangle(x_of(0), y + 5, end - x_of(0), kRow - 10, side_class(row.ratio()),
                     tip_of(row));
      label = fmt::format("{:.2f}: {:.3f} ms, {} {:.3f} ms", row.ratio(), row.ms,
                          row.peers.front().peer, row.peers.front().ms);
      if (row.cell.goal_ms > 0) {
        const double goal = x_of(row.peers.front().ms / row.cell.goal_ms);
        svg->line(goal, y + 3, goal, y + kRow - 3, "goal");
      }
    }
    svg->text(kRight + 12, middle, label, "");
  }
  const bool goals = std::any_of(report.rows.begin(), report.rows.end(),
                                 [](const PrefillRow& row) { return row.cell.goal_ms > 0; });
  if (!goals) return bottom + kMargin;
  svg->text(kLeft, bottom + 16, "Upright marks: the goal of that cell.", "faint");
  return bottom + 16 + kMargin;
}

double draw_dots(const PrefillReport& report, double top, Svg* svg) {
  constexpr double kRow = 24, kLeft = 96;
  const std::vector<std::string> heads = distinct(report.rows, heads_text);
  double low = 0.8, high = 1.25;
  for (const PrefillRow& row : report.rows) {
    if (std::isnan(row.ratio())) continue;
    low = std::min(low, row.ratio() * 0.95);
    high = std::max(high, row.ratio() * 1.05);
  }
  const auto x_of = [&](double ratio) {
    return kLeft + (kWidth - kMargin - kLeft) * std::log(ratio / low) / std::log(high / low);
  };
  const double first = top + 22, bottom = first + kRow * static_cast<double>(heads.size());
  std::vector<double> ticks;
  for (const double tick :
       {0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0}) {
    if (tick >= low && tick <= high) ticks.push_back(tick);
  }
  draw_ratio_axis(ticks, top, bottom, x_of, svg);
  for (size_t i = 0; i < heads.size(); ++i) {
    const double y = first + kRow * (static_cast<double>(i) + 0.5);
    svg->text(kLeft - 16, y, heads[i], "", "end");
    for (const PrefillRow& row : report.rows) {
      if (heads_text(row.cell) != heads[i] || std::isnan(row.ratio())) continue;
      svg->circle(x_of(row.ratio()), y, 5, std::string("dot ") + side_class(row.ratio()),
                  tip_of(row));
    }
  }
  svg->text(kLeft - 16, top + 4, "H/HV", "faint", "end");
  return bottom + kMargin;
}

size_t heat_class(double ratio) {
  size_t step = 0;
  while (step < kHeatSteps.size() && ratio >= kHeatSteps[step]) ++step;
  return step;
}

void draw_heat_legend(double y, double left, Svg* svg) {
  for (size_t i = 0; i <= kHeatSteps.size(); ++i) {
    const double x = left + 96 * static_cast<double>(i);
    svg->rectangle(x, y - 8, 16, 16, fmt::format("h{}", i));
    const std::string text = i == 0 ? fmt::format("< {:g}", kHeatSteps[0])
                             : i == kHeatSteps.size()
                                 ? fmt::format(">= {:g}", kHeatSteps[i - 1])
                                 : fmt::format("{:g} to {:g}", kHeatSteps[i - 1], kHeatSteps[i]);
    svg->text(x + 22, y, text, "faint");
  }
}

double draw_heat(const PrefillReport& report, double top, Svg* svg) {
  constexpr double kRow = 24, kLeft = 130;
  const std::vector<std::string> heads = distinct(report.rows, heads_text);
  const std::vector<std::string> lengths =
      distinct(report.rows, [](const Cell& cell) { return lengths_text(cell.lengths); });
  const double column = (kWidth - kMargin - kLeft) / static_cast<double>(heads.size());
  const double first = top + 20;
  for (size_t i = 0; i < heads.size(); ++i) {
    svg->text(kLeft + column * (static_cast<double>(i) + 0.5), top + 4, heads[i], "", "middle");
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    svg->text(kLeft - 14, first + kRow * (static_cast<double>(i) + 0.5), lengths[i], "", "end");
  }
  for (const PrefillRow& row : report.rows) {
    const auto i = std::find(heads.begin(), heads.end(), heads_text(row.cell)) - heads.begin();
    const auto j =
        std::find(lengths.begin(), lengths.end(), lengths_text(row.cell.lengths)) - lengths.begin();
    const double x = kLeft + column * static_cast<double>(i),
                 y = first + kRow * static_cast<double>(j);
    const bool known = !std::isnan(row.ratio());
    const size_t heat = known ? heat_class(row.ratio()) : 2;
    svg->rectangle(x + 1, y + 1, column - 2, kRow - 2, fmt::format("h{}", heat), tip_of(row));
    svg->text(x + column / 2, y + kRow / 2,
              known                 ? fmt::format("{:.2f}", row.ratio())
              : row.failure.empty() ? fmt::format("{:.3g} ms", row.ms)
                                    : "not run",
              heat == 0 || heat >= 5 ? "on-dark" : "on-light", "middle");
  }
  const double bottom = first + kRow * static_cast<double>(lengths.size());
  draw_heat_legend(bottom + 22, kLeft, svg);
  return bottom + 22 + kMargin;
}

}  // namespace

std::string draw_prefill(const PrefillReport& all) {
  PrefillReport report = all;
  report.rows = own_choices(all.rows);
  Svg svg(kWidth);
  double y = draw_heading(report, &svg);
  if (report.rows.size() <= kMostBars) {
    y = draw_bars(report, y, &svg);
  } else {
    y = draw_heat(report, draw_dots(report, y, &svg), &svg);
  }
  return svg.document(y, "Prefill: time of the best peer over time of Sluice, cell by cell");
}

}  // namespace sluice::tools
