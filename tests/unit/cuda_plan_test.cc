// Measures the planner's arithmetic on the host: length buckets, chunk counts of any offsets, the
// order that the counting sort gives.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "check/generate.hpp"
#include "cuda/device/segments.hpp"

namespace sluice::cuda::device {
namespace {

constexpr int64_t kMostRows = (int64_t{1} << 31) - 65;  ///< the core refuses more
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CudaPlan, BucketsRiseWithLength) {
  int last = -1;
  for (uint32_t chunks = 0; chunks < 100000; ++chunks) {
    const int bucket = length_bucket(chunks);
    EXPECT_GE(bucket, last);
    EXPECT_LE(bucket, last + 1);
    last = bucket;
  }
  for (uint32_t chunks = 0; chunks < 16; ++chunks) {
    EXPECT_EQ(length_bucket(chunks), static_cast<int>(chunks));
  }
}

TEST(CudaPlan, TheLongestSequenceHasABucket) {
  const uint32_t most = chunks_between(0, kMostRows, kMostRows);
  EXPECT_EQ(most, (1u << 25) - 1);
  EXPECT_LT(length_bucket(most), kBuckets);
  EXPECT_LT(length_bucket(std::numeric_limits<uint32_t>::max()), kBuckets);
}

/// Sequences of one bucket differ by less than an eighth.
TEST(CudaPlan, BucketsAreNarrow) {
  uint32_t first = 0;
  for (uint32_t chunks = 1; chunks < 1u << 20; ++chunks) {
    if (length_bucket(chunks) != length_bucket(chunks - 1)) first = chunks;
    EXPECT_LT(8 * (chunks - first), first + 8);
  }
}

TEST(CudaPlan, ChunksOfGoodOffsets) {
  EXPECT_EQ(chunks_between(0, 0, 100), 0u);
  EXPECT_EQ(chunks_between(7, 8, 100), 1u);
  EXPECT_EQ(chunks_between(0, 64, 100), 1u);
  EXPECT_EQ(chunks_between(0, 65, 100), 2u);
  EXPECT_EQ(chunks_between(36, 100, 100), 1u);
  EXPECT_EQ(chunks_between(100, 100, 100), 0u);
}

/// Malformed offsets never give more chunks than the rows have, and never a negative count.
TEST(CudaPlan, ChunksOfMalformedOffsetsStayInside) {
  const int64_t values[] = {kMin, kMin + 1, -1, 0, 1, 63, 64, 65, 99, 100, 101, 1 << 30, kMax};
  for (const int64_t T : {int64_t{0}, int64_t{1}, int64_t{100}, kMostRows}) {
    for (const int64_t begin : values) {
      for (const int64_t end : values) {
        EXPECT_LE(chunks_between(begin, end, T), static_cast<uint32_t>((T + 63) / 64));
        if (end <= begin) {
          EXPECT_EQ(chunks_between(begin, end, T), 0u);
        }
      }
    }
  }
}

/// The device's counting sort, step by step, in the order of one thread.
std::vector<int> order_of(const std::vector<uint32_t>& chunks) {
  std::vector<int> counts(kBuckets, 0), order(chunks.size());
  for (const uint32_t c : chunks) ++counts[static_cast<size_t>(length_bucket(c))];
  int first = 0;
  for (size_t b = kBuckets; b-- > 0;) first += std::exchange(counts[b], first);
  for (size_t n = 0; n < chunks.size(); ++n) {
    int& place = counts[static_cast<size_t>(length_bucket(chunks[n]))];
    order[static_cast<size_t>(place++)] = static_cast<int>(n);
  }
  return order;
}

TEST(CudaPlan, OrderIsLongestFirst) {
  check::Random random(3);
  std::vector<uint32_t> chunks;
  for (int n = 0; n < 5000; ++n) {
    chunks.push_back(static_cast<uint32_t>(random.bits() >> (40 + random.bits() % 24)));
  }
  std::vector<int> order = order_of(chunks);
  for (size_t i = 1; i < order.size(); ++i) {
    const uint64_t before = chunks[static_cast<size_t>(order[i - 1])];
    const uint64_t after = chunks[static_cast<size_t>(order[i])];
    EXPECT_GE(9 * before + 9, 8 * after) << i;
    EXPECT_GE(length_bucket(static_cast<uint32_t>(before)),
              length_bucket(static_cast<uint32_t>(after)));
  }
  std::sort(order.begin(), order.end());
  std::vector<int> all(chunks.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(order, all);
}

}  // namespace
}  // namespace sluice::cuda::device
