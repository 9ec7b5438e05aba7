// Measures how the decode kernel's launches are cut up: every tile belongs to one CTA, clusters and
// shared memory stay within what a GPU has, small batches reach all multiprocessors. Host
// arithmetic; no GPU and no nvcc is needed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cuda/decode/plan_grid.h"

namespace sluice::cuda::decode {
namespace {

Work model(int64_t sequences, bool layer, int tokens = 1, int r = 2, int K = 128, int V = 128) {
  return {sequences * 16, V, K, r, tokens, layer};
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
            const int K = V == 64 ? 128 : 256;
            const Work w = model(sequences, layer, tokens, r, K, V);
            const Grid grid = plan_grid(w, 132);
            const int tiles = tiles_of(w, grid.column_bits);
            EXPECT_GE(grid.ctas * grid.tiles, tiles);
            EXPECT_LE(grid.ctas, tiles);
            EXPECT_GE(grid.column_bits, kMinColumnBits);
            EXPECT_LE(grid.column_bits, max_column_bits(K));
            EXPECT_LE(shared_bytes(w, grid), kMaxSharedBytes);
            if (layer) {
              EXPECT_LE(grid.ctas, kMaxClusterCtas);
            }
          }
        }
      }
    }
  }
}

/// Every instance's threads have all of a tile between them, kVectors of four numbers at most.
TEST(CudaDecodePlan, ThreadsCoverTiles) {
  for (const int K : {64, 128, 256}) {
    for (int bits = kMinColumnBits; bits <= max_column_bits(K); ++bits) {
      const int vectors = (warp_rows(K) << bits) >> 7;
      EXPECT_EQ(32 * warps_of(K) * vectors * 4, K << bits);
      EXPECT_GE(vectors, 4);
      EXPECT_LE(vectors, kVectors);
    }
    EXPECT_LE(32 * warps_of(K), kMaxThreads);
  }
}

/// Columns of a tile and CTAs of a unit.
void expect_cut(const Work& work, int columns, int ctas) {
  const Grid grid = plan_grid(work, 132);  // multiprocessors of an H200
  EXPECT_EQ(1 << grid.column_bits, columns);
  EXPECT_EQ(grid.ctas, ctas);
}

/// HV = 32: whole heads as soon as they are enough.
TEST(CudaDecodePlan, SmallBatchesAreSplit) {
  expect_cut(model(1, false), 32, 8);
  expect_cut(model(2, false), 64, 4);
  expect_cut(model(4, false), 128, 2);
  expect_cut(model(256, false), 128, 2);
  expect_cut(model(256, false, 1, 2, 256, 256), 64, 8);
  expect_cut(model(256, false, 1, 2, 64, 64), 64, 2);
  expect_cut(model(1, true), 32, 8);
  expect_cut(model(2, true), 64, 4);
  expect_cut(model(4, true), 128, 2);
  expect_cut(model(8, true), 128, 2);
  expect_cut(model(32, true), 128, 1);
}

}  // namespace
}  // namespace sluice::cuda::decode
