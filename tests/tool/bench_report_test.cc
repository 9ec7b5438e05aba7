// Measures what `bench prefill` makes of its rows: JSON in which unknown numbers are null, summaries,
// verdicts. Made-up records have losses, missing peers and failures.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tools/bench/cell.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/rows.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

// A record of that grid in which cell i is 1 + (i % 7 - 1) / 4 times as fast as its best peer.
PrefillReport record(const std::string& grid) {
  PrefillReport report;
  PrefillSettings& s = report.settings;
  report.date = "2026-01-02T03:04:05Z", report.version = "1.2.3", s.run.commit = "<&\">";
  s.command = "sluice bench prefill", s.grid = grid, report.machine = {{"name", "A GPU"}};
  s.run.repeat = 9, s.rest_ms = 5;
  report.ceilings = {7e14, 4e12, "probe", "copy"};
  report.first_call = {200, 30, 1};
  for (const Cell& cell : named_grid(grid)) {
    PrefillRow& row = report.rows.emplace_back();
    row.cell = cell;
    row.kernel = "kernel";
    row.peers = peers_of(all_peers(), cell, "published", "bf16");
    row.ms = row.peers.front().ms / (1 + (static_cast<double>(report.rows.size() % 7) - 1) / 4);
    row.floor_ms = row.ms / 2;
  }
  return report;
}

TEST(BenchReport, JsonHasWhatWasMeasured) {
  PrefillReport report = record("marks");
  report.rows[1].failure = "not supported by cuda: no";
  report.rows[2].peers.clear();
  report.rows[3].memory_floor = true;
  PrefillRow& row = report.rows[4];
  row.ms_min = 1, row.ms_p90 = 2, row.host_us = 3, row.clock_mhz = 4, row.us_per_chunk_head = 5;
  row.tflops = 6, row.gb_per_s = 7, row.error_o = 8, row.error_state = 9;
  const nlohmann::json json = to_json(report);
  EXPECT_EQ(json.at("schema"), "sluice.bench.prefill/1");
  EXPECT_EQ(json.at("rows").size(), report.rows.size());
  const nlohmann::json again = nlohmann::json::parse(record_text(json));
  EXPECT_TRUE(again.at("rows")[0].at("host_us").is_null());
  EXPECT_TRUE(again.at("rows")[2].at("ratio_to_best_peer").is_null());
  double expected = 0;
  for (const char* key : {"ms_min", "ms_p90", "host_us", "clock_mhz", "us_per_chunk_head", "tflops",
                          "gb_per_s", "error_o", "error_state"}) {
    EXPECT_EQ(again.at("rows")[4].at(key), ++expected) << key;
  }
  EXPECT_NEAR(again.at("rows")[0].at("share_of_floor").get<double>(), .5, 1e-12);
  EXPECT_TRUE(again.dump() == json.dump());
}

TEST(BenchReport, SummaryCountsLossesAndMissingPeers) {
  PrefillReport report = record("marks");
  report.rows.resize(4);
  report.rows[0].ms = report.rows[0].peers.front().ms / 2;  // twice as fast
  report.rows[1].ms = report.rows[1].peers.front().ms * 4;  // four times as slow
  report.rows[2].peers.clear();
  report.rows[3].ms = report.rows[3].peers.front().ms;  // a tie is no loss
  const PeerSummary summary = summary_of(report.rows);
  EXPECT_EQ(summary.compared, 3);
  EXPECT_EQ(summary.slower, 1);
  EXPECT_NEAR(summary.mean, std::cbrt(.5), 1e-12);
  EXPECT_TRUE(std::isnan(summary_of({}).mean));
}

// Three ways of each of two cells: the choice is the best of the first one, 1.25 times the best of
// the second.
TEST(BenchReport, ChoicesAreComparedWithTheBestForcedWay) {
  const PrefillReport marks = record("marks");
  std::vector<PrefillRow> rows;
  for (size_t cell = 0; cell < 2; ++cell) {
    for (const char* name : {"auto", "never", "4"}) {
      PrefillRow& row = rows.emplace_back(marks.rows[cell]);
      ASSERT_EQ(parse_split_way(name, &row.way), "");
      row.ms = row.way.split == Split::kNever ? 3 : 1;
    }
  }
  rows[3].ms = 1.25;
  const ChoiceSummary choices = choices_of(rows);
  EXPECT_EQ(choices.cells, 2);
  EXPECT_EQ(choices.within, 1);
  EXPECT_NEAR(choices.worst, .8, 1e-12);
  EXPECT_EQ(summary_of(rows).compared, 2);
  rows.resize(1);
  EXPECT_EQ(choices_of(rows).cells, 0);
}

TEST(BenchReport, OneOfAThingIsNoPlural) {
  EXPECT_EQ(counted(0, "case"), "0 cases");
  EXPECT_EQ(counted(1, "case"), "1 case");
  EXPECT_EQ(counted(2, "more case"), "2 more cases");
}

TEST(BenchReport, WaysByName) {
  SplitWay way;
  EXPECT_EQ(parse_split_way("16", &way), "");
  EXPECT_TRUE(way.split == Split::kSegments && way.value == 16);
  EXPECT_EQ(parse_split_way("length", &way), "");
  EXPECT_EQ(way.split, Split::kLength);
  for (const char* text : {"", "1", "4097", "-2", "2x", "Never"}) {
    EXPECT_NE(parse_split_way(text, &way), "") << text;
  }
  EXPECT_EQ(history_of("forget"), History::kForget);
}

TEST(BenchReport, LargeErrorsAndNaNAreWrong) {
  PrefillRow row;
  EXPECT_TRUE(is_wrong(row, "bf16"));
  row.error_o = 4e-3, row.error_state = 9e-3;
  EXPECT_FALSE(is_wrong(row, "bf16"));
  EXPECT_TRUE(is_wrong(row, "fp16"));
  row.error_state = 2e-2;
  EXPECT_TRUE(is_wrong(row, "bf16"));
  row.error_state = kUnknown;
  EXPECT_TRUE(is_wrong(row, "bf16"));
  row.error_o = row.error_state = 5e-4;
  EXPECT_FALSE(is_wrong(row, "fp16"));
  EXPECT_TRUE(is_wrong(row, "fp32"));
}

}  // namespace
}  // namespace sluice::tools
