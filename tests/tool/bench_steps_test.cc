// Measures the model behind `sluice bench decode` and `sluice bench layer`: bytes of a step by
// hand, the cells of the grids, the table of peers, unknown numbers in the record.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <stdexcept>

#include "tools/bench/step_report.hpp"

namespace sluice::tools {
namespace {

TEST(BenchSteps, BytesByHand) {
  StepCell c;
  c.H = 1, c.HV = 2, c.K = 4, c.V = 8, c.B = 3;
  // States 64 floats each way; q, k, v, o of 4 + 4 + 16 + 16 halves; gate and beta of two heads.
  EXPECT_EQ(step_bytes(c), 3 * (2 * 256 + 80 + 8));
  c.state = "bf16";
  EXPECT_EQ(step_bytes(c), 3 * (2 * 128 + 80 + 8));
  c.T = 4, c.per_token = true;
  EXPECT_EQ(step_bytes(c), 3 * (5 * 128 + 4 * (80 + 8)));
  c.T = 1, c.per_token = false, c.layer = true;
  // z, three columns of 24 channels each way, and once four weights and a bias a channel.
  EXPECT_EQ(step_bytes(c), 3 * (2 * 128 + 80 + 8 + 32 + 288) + 240);
}

TEST(BenchSteps, RingBytesByHand) {
  StepCell c;
  c.H = 1, c.HV = 2, c.K = 4, c.V = 8, c.B = 3, c.ring = 3;
  // One token a call: 0, 1, 2 live entries in turn, the last of which folds.
  EXPECT_EQ(ring_samples(c, 5), (std::vector<int64_t>{0, 1, 2, 1, 2}));
  // Of 3000 samples all but the first are 1 and 2 in turn; an entry: 4 + 16 numbers and 2 decays.
  const double live = (1500 + 2 * 1499) / 3000.0, folds = 1499 / 3000.0;
  EXPECT_NEAR(step_bytes(c), 3 * ((1 + folds) * 256 + 80 + 8 + (live + 1) * 88), 1e-6);
  c.entry = "bf16";
  EXPECT_NEAR(step_bytes(c), 3 * ((1 + folds) * 256 + 80 + 8 + (live + 1) * 48), 1e-6);
  c.T = 4, c.ring = 16;
  for (const int64_t sample : ring_samples(c, 1000)) EXPECT_LE(sample, 12);
}

TEST(BenchSteps, WhatARingSaves) {
  StepReport report;
  const auto add = [&](int64_t T, bool per_token, int64_t ring, double us) {
    StepRow& row = report.rows.emplace_back();
    row.cell.T = T, row.cell.per_token = per_token, row.cell.ring = ring, row.us = us;
    row.bytes = step_bytes(row.cell);
  };
  add(1, false, 0, 40), add(4, true, 0, 100), add(4, false, 16, 50);
  const nlohmann::json ring = to_json(report)["rows"][2]["ring"];
  EXPECT_EQ(ring["saved_us"], 50.0);
  EXPECT_EQ(ring["us_over_plain_step"], 1.25);
  EXPECT_NEAR(ring["saved_gb"], 1e-9 * (report.rows[1].bytes - report.rows[2].bytes), 1e-12);
  EXPECT_TRUE(to_json(report)["rows"][0]["ring"].is_null());
  EXPECT_EQ(row_without_ring(report, report.rows[2].cell, 3), nullptr);
}

TEST(BenchSteps, GridsHaveTheMarks) {
  int goals = 0;
  for (const bool layer : {false, true}) {
    for (const StepCell& cell : step_grid("marks", layer)) {
      EXPECT_EQ(cell.layer, layer);
      EXPECT_EQ(cell.HV % cell.H, 0);
      goals += cell.goal_us > 0 ? 1 : 0;
    }
    EXPECT_EQ(step_grid("full", layer).size(), 100u);
  }
  EXPECT_EQ(goals, 13);
}

TEST(BenchSteps, PeersAreRead) {
  const std::vector<StepPeer> peers = parse_step_peers(embedded_step_peers());
  ASSERT_GE(peers.size(), 10u);
  EXPECT_EQ(peers[0].peer, "FLA 0.5.2");
  EXPECT_EQ(peers[0].us, 4.02);
  const std::string header = "peer,op,HV,B,T,state,us\n";
  for (const char* line : {"x,decode,1,2", "x,decode,1.5,2,1,fp32,3"}) {
    const std::string text = header + line;
    EXPECT_THROW(parse_step_peers({"table", text.c_str()}), std::runtime_error) << line;
  }
}

TEST(BenchSteps, UnknownIsNull) {
  StepReport report;
  report.rows.emplace_back();
  const nlohmann::json row = nlohmann::json::parse(to_json(report).dump())["rows"][0];
  EXPECT_TRUE(row["us"].is_null());
  EXPECT_TRUE(row["share_of_copy"].is_null());
  EXPECT_TRUE(row["ratio_to_best_peer"].is_null());
}

}  // namespace
}  // namespace sluice::tools
