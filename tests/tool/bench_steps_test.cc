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
  EXPECT_THROW(parse_step_peers("header\nx,decode,1,2\n"), std::runtime_error);
  EXPECT_THROW(parse_step_peers("header\nx,decode,1.5,2,1,fp32,3\n"), std::runtime_error);
}

TEST(BenchSteps, UnknownIsNull) {
  StepReport report;
  report.rows.emplace_back();
  const nlohmann::json row = to_json(report)["rows"][0];
  EXPECT_TRUE(row["us"].is_null());
  EXPECT_TRUE(row["share_of_copy"].is_null());
  EXPECT_TRUE(row["ratio_to_best_peer"].is_null());
}

}  // namespace
}  // namespace sluice::tools
