// Measures that the table of `sluice bench kda` has its marks and its peers' columns, and that its
// JSON and its figure hold what was measured.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tools/bench/cell.hpp"
#include "tools/bench/kda_report.hpp"

namespace sluice::tools {
namespace {

/// All cells of the grid at `ms` each, with their peers.
PrefillReport prefill(const std::string& gates, double ms) {
  PrefillReport report;
  report.settings.gates = gates;
  for (const Cell& cell : named_grid("kda")) {
    PrefillRow& row = report.rows.emplace_back();
    row.cell = cell, row.ms = ms, row.error_o = 4e-3, row.kernel = "cuda.k";
    row.peers = peers_of(all_peers(), cell, gates, "bf16");
  }
  return report;
}

StepReport steps(bool layer) {
  StepReport report;
  for (const StepCell& cell : step_grid("kda", layer)) {
    StepRow& row = report.rows.emplace_back();
    row.cell = cell, row.us = 10;
  }
  return report;
}

KdaReport all() {
  KdaReport report;
  report.machine = {{"name", "a GPU"}};
  for (const auto& rows :
       {kda_rows(prefill("kda_bounded", 0.1)), kda_rows(prefill("kda_slow", 1.0)),
        kda_rows(steps(false)), kda_rows(steps(true))}) {
    report.rows.insert(report.rows.end(), rows.begin(), rows.end());
  }
  return report;
}

const nlohmann::json& find(const KdaReport& report, const std::string& what,
                           const std::string& gates) {
  return *std::find_if(report.rows.begin(), report.rows.end(), [&](const nlohmann::json& row) {
    return row["what"] == what && row["gates"] == gates;
  });
}

TEST(BenchKda, EveryCellHasItsMark) {
  const KdaReport report = all();
  EXPECT_EQ(report.rows.size(), 7u + 7u + 8u + 6u);
  for (const nlohmann::json& row : report.rows) {
    if (row["part"] == "prefill") {
      EXPECT_GT(row["mark"], row["stretch"]) << row["what"];
    }
  }
  EXPECT_EQ(find(report, "8192x1, 12 heads", "bounded")["mark"], .090);
  EXPECT_EQ(find(report, "32768x1, 32 heads", "slow")["mark"], 1.15);
  EXPECT_EQ(find(report, "B 32, 32 heads, bf16 states", "raw")["mark"], 21);
}

TEST(BenchKda, PeersHaveColumnsByTheirNames) {
  const KdaReport report = all();
  const nlohmann::json& bounded = find(report, "8192x1, 32 heads", "bounded");
  for (const nlohmann::json& peer : bounded["peers"]) EXPECT_GT(peer.get<double>(), 0.2);
  EXPECT_NEAR(bounded["ratio_to_best_peer"].get<double>(), 2.5, 0.1);
  const nlohmann::json& slow = find(report, "8192x1, 32 heads", "slow");
  EXPECT_GT(slow["peers"][kKdaPeers[0]].get<double>(), 1.5);
  EXPECT_TRUE(std::isnan(slow["peers"][kKdaPeers[1]].get<double>()));
}

TEST(BenchKda, RecordAndFigureHoldTheRows) {
  const KdaReport report = all();
  const nlohmann::json record = to_json(report);
  EXPECT_EQ(record["schema"], "sluice.bench.kda/1");
  EXPECT_EQ(record["rows"].size(), report.rows.size());
  EXPECT_EQ(record["rows"][0]["peers"].size(), static_cast<size_t>(kKdaPeerCount));
  const std::string svg = kda_figure(report);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(svg.find("prefill 8192x4, 32 heads, slow"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace sluice::tools
