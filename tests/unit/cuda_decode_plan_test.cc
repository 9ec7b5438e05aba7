// Measures how the decode kernel's launches are cut up: every tile belongs to one CTA, clusters and
// shared memory stay within what a GPU has, small batches reach all multiprocessors. Host
// arithmetic; no GPU and no nvcc is needed. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/kernels/decode/plan_grid.hpp"

namespace sluice::cuda::decode {
namespace {

Work model(int64_t sequences, bool layer, int tokens = 1, int r = 2, int K = 128, int V = 128) {
  return {sequences * 16, r * (V / kTileColumns), K, r, tokens, layer};
}

TEST(CudaDecodePlan, DivisorsAreExact) {
  for (const int d : {1, 2, 3, 7, 12, 16, 48, 255, 288, 1024, 4096, 16896}) {
    const Divisor by = Divisor::of(d);
    for (int64_t n = 0; n < 300000; n += 1 + n / 1000) {
      const auto wide = static_cast<uint64_t>(n) * by.magic;
      ASSERT_EQ(static_cast<int64_t>(wide >> Divisor::kShift), n / d) << n << " / " << d;
    }
  }
}

TEST(CudaDecodePlan, EveryTileHasOneCta) {
  for (const bool layer : {false, true}) {
    for (const int64_t sequences : {1, 2, 3, 16, 100, 1000}) {
      for (const int r : {1, 2, 3, 4, 8}) {
        for (const int V : {16, 64, 128, 256}) {
          for (const int tokens : {1, 4, 16}) {
            const Work w = model(sequences, layer, tokens, r, 256, V);
            const Grid grid = plan_grid(w, 132);
            EXPECT_GE(grid.ctas * grid.tiles, w.tiles);
            EXPECT_LE(grid.ctas, w.tiles);
            EXPECT_LE(shared_bytes(w, grid), kMaxSharedBytes);
            EXPECT_LE(grid.threads, kMaxThreads);
            EXPECT_EQ(grid.threads % 32, 0);
            if (layer) {
              EXPECT_LE(grid.ctas, kMaxClusterCtas);
            }
          }
        }
      }
    }
  }
}

/// The H200's 132 multiprocessors, HV = 32.
TEST(CudaDecodePlan, SmallBatchesAreSplit) {
  EXPECT_EQ(plan_grid(model(1, false), 132).ctas, 8);
  EXPECT_EQ(plan_grid(model(4, false), 132).ctas, 4);
  EXPECT_EQ(plan_grid(model(64, false), 132).ctas, 2);
  EXPECT_EQ(plan_grid(model(256, false), 132).ctas, 1);
  EXPECT_EQ(plan_grid(model(1, true), 132).ctas, 8);
  EXPECT_EQ(plan_grid(model(4, true), 132).ctas, 4);
  EXPECT_EQ(plan_grid(model(32, true), 132).ctas, 1);
}

}  // namespace
}  // namespace sluice::cuda::decode
