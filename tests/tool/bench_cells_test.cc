// Measures whether grids, lists of heads and lengths, and the peers' tables are read right. Texts
// are parsed and compared with what they say, wrong ones must be refused by name, and the tables
// compiled in are checked against rows known from their sources.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "tools/bench/cell.hpp"
#include "tools/bench/peers.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {
namespace {

using Lengths = std::vector<int64_t>;

Lengths lengths(const std::string& text) {
  Lengths out;
  EXPECT_EQ(parse_lengths(text, &out), "") << text;
  return out;
}

Cell cell(int64_t H, int64_t HV, const std::string& text) {
  Cell out;
  out.H = H, out.HV = HV, out.lengths = lengths(text);
  return out;
}

TEST(BenchCell, LengthsAreReadInEveryForm) {
  EXPECT_EQ(lengths("8192x4"), Lengths(4, 8192));
  EXPECT_EQ(lengths("32768"), Lengths({32768}));
  EXPECT_EQ(lengths("32768x1"), Lengths({32768}));
  EXPECT_EQ(lengths("28672+4096"), Lengths({28672, 4096}));
  EXPECT_EQ(lengths("100x2+5"), Lengths({100, 100, 5}));
  EXPECT_EQ(lengths("1x3"), Lengths({1, 1, 1}));
}

TEST(BenchCell, LengthsAreWrittenAsTheyAreRead) {
  for (const char* text : {"8192x4", "32768x1", "28672+4096", "100x2+5", "5+100x2", "7+8+7"}) {
    EXPECT_EQ(lengths_text(lengths(text)), text);
  }
  EXPECT_EQ(lengths_text({16384, 16384}), "16384x2");
  EXPECT_EQ(lengths_text({9}), "9x1");
}

TEST(BenchCell, WrongLengthsAreRefusedByName) {
  Lengths out;
  for (const char* text : {"", "x4", "8192x", "8192x0", "0", "-1", "8192+", "+1", "8192x4x2", "8k",
                           " 1", "2147483649", "2147483648x2", "99999999999999999999"}) {
    const std::string trouble = parse_lengths(text, &out);
    EXPECT_NE(trouble.find(fmt::format("'{}'", text)), std::string::npos) << text;
  }
}

TEST(BenchCell, HeadsAreReadAndChecked) {
  Cell out;
  EXPECT_EQ(parse_heads("16/48", &out), "");
  EXPECT_EQ(out.H, 16);
  EXPECT_EQ(out.HV, 48);
  EXPECT_EQ(heads_text(out), "16/48");
  EXPECT_NE(parse_heads("16/24", &out).find("no multiple of H = 16"), std::string::npos);
  for (const char* text : {"16", "/16", "16/", "0/4", "4/0", "a/b", "2/4/8"}) {
    EXPECT_NE(parse_heads(text, &out), "") << text;
  }
}

TEST(BenchGrid, PublishedIsNineHeadCountsTimesNineteenLengths) {
  const std::vector<Cell> grid = named_grid("published");
  std::set<std::string> heads, packs, both;
  for (const Cell& c : grid) {
    heads.insert(heads_text(c));
    packs.insert(lengths_text(c.lengths));
    both.insert(heads_text(c) + " " + lengths_text(c.lengths));
  }
  EXPECT_EQ(grid.size(), 171u);
  EXPECT_EQ(heads.size(), 9u);
  EXPECT_EQ(packs.size(), 19u);
  EXPECT_EQ(both.size(), 171u);
}

TEST(BenchGrid, EveryCellOfEveryGridHasAPeer) {
  for (const std::string& name : grid_names()) {
    const char* const gates = name == "kda" ? "kda_slow" : "published";
    for (const Cell& c : named_grid(name)) {
      EXPECT_FALSE(peers_of(all_peers(), c, gates, "bf16").empty())
          << name << " " << heads_text(c) << " " << lengths_text(c.lengths);
    }
  }
}

TEST(BenchGrid, MarksHaveGoals) {
  const std::vector<Cell> marks = named_grid("marks");
  EXPECT_EQ(marks.size(), 10u);
  for (const Cell& c : marks) EXPECT_GT(c.goal_ms, 0) << lengths_text(c.lengths);
  EXPECT_THROW(named_grid("none"), std::invalid_argument);
}

TEST(BenchPeers, RowsAreThoseOfTheSources) {
  const auto best = [](const Cell& c) {
    return peers_of(all_peers(), c, "published", "bf16").front();
  };
  EXPECT_EQ(best(cell(16, 64, "8192x4")).peer, "TileOPs 0.1.0");
  EXPECT_NEAR(best(cell(16, 64, "8192x4")).ms, .7585, 1e-9);
  EXPECT_EQ(best(cell(2, 8, "32768")).peer, "FlashInfer 0.7.2");
  EXPECT_NEAR(best(cell(2, 8, "32768")).ms, .2408, 1e-9);
  EXPECT_NEAR(best(cell(16, 48, "4096x8")).ms, .637, 1e-9);
}

TEST(BenchPeers, TheSameGatesComeFirstAndOthersOnlyWithoutThem) {
  const Cell c = cell(16, 16, "32768");
  EXPECT_EQ(peers_of(all_peers(), c, "uniform", "fp16").front().peer, "TileOPs");
  for (const PeerTime& row : peers_of(all_peers(), c, "published", "bf16")) {
    EXPECT_EQ(row.gates, "published");
  }
  EXPECT_FALSE(peers_of(all_peers(), c, "slow", "bf16").empty());
  EXPECT_TRUE(peers_of(all_peers(), c, "published", "fp32").empty());
  EXPECT_TRUE(peers_of(all_peers(), cell(3, 3, "17"), "published", "bf16").empty());
}

TEST(BenchPeers, KeyWiseGatesAreBesideKeyWiseOnes) {
  const Cell c = cell(32, 32, "8192");
  EXPECT_EQ(peers_of(all_peers(), c, "kda_bounded", "bf16").front().peer, "cuDNN kda_hopper_cuda");
  for (const char* gates : {"published", "kda_slow"}) {
    for (const PeerTime& row : peers_of(all_peers(), c, gates, "bf16")) {
      EXPECT_EQ(are_key_wise(row.gates), are_key_wise(gates)) << row.peer;
    }
  }
}

TEST(BenchPeers, WrongTablesAreRefusedWithTheirLine) {
  const std::string header = "peer,H,HV,lengths,gates,dtype,ms\n";
  for (const char* line :
       {"A,1,1,64x1,flat,bf16", "A,2,3,64x1,flat,bf16,1", "A,1,1,64y1,flat,bf16,1",
        "A,1,1,64x1,flat,bf16,fast", "A,1,1,64x1,flat,bf16,0"}) {
    const std::string text = header + line;
    try {
      parse_peers({"table", text.c_str()});
      ADD_FAILURE() << line;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("table:2: ", 0), 0u) << error.what();
    }
  }
  EXPECT_THROW(parse_peers({"table", "peer,ms\n"}), std::runtime_error);
}

}  // namespace
}  // namespace sluice::tools
