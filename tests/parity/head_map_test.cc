// Measures which key head a value head reads, without the library's own map: a grouped call must
// equal, bit for bit, the call on q and k that were written out once per value head by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kT = 37, kH = 2, kHV = 6, kK = 8, kV = 5;

std::vector<float> wave(int64_t count, float phase) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(phase + 0.37f * static_cast<float>(i));
  return x;
}

/// q or k with the head that each value head should read, spelled out.
std::vector<float> per_value_head(const std::vector<float>& x, HeadMap map) {
  std::vector<float> y;
  for (int64_t t = 0; t < kT; ++t) {
    for (int64_t h = 0; h < kHV; ++h) {
      const int64_t head = map == HeadMap::kBlock ? h / 3 : h % 2;
      const auto row = x.begin() + (t * kH + head) * kK;
      y.insert(y.end(), row, row + kK);
    }
  }
  return y;
}

std::vector<float> outputs(const std::vector<float>& q, const std::vector<float>& k, int64_t heads,
                           HeadMap map, Implementation implementation) {
  const std::vector<float> v = wave(kT * kHV * kV, 3), g(kT * kHV, -0.1f), beta(g.size(), 0.7f);
  std::vector<float> o(v.size(), NAN);
  const ChunkForwardArgs args{.q{q.data(), {1, kT, heads, kK}},
                              .k{k.data(), {1, kT, heads, kK}},
                              .v{v.data(), {1, kT, kHV, kV}},
                              .gate{g.data(), {1, kT, kHV}},
                              .beta{beta.data(), {1, kT, kHV}},
                              .o{o.data(), {1, kT, kHV, kV}},
                              .qk_norm = QkNorm::kL2,
                              .head_map = map,
                              .implementation = implementation};
  HostWorkspace scratch;
  const auto need = workspace_size(args);
  EXPECT_TRUE(need.ok()) << need.status.message;
  const Status status = chunk_forward(args, scratch.reserve(need.value.bytes));
  EXPECT_TRUE(status.ok()) << status.message;
  return o;
}

TEST(HeadMap, GroupedEqualsWrittenOut) {
  const std::vector<float> q = wave(kT * kH * kK, 1), k = wave(kT * kH * kK, 2);
  for (const Implementation implementation : {Implementation::kCpu, Implementation::kReference}) {
    for (const HeadMap map : {HeadMap::kBlock, HeadMap::kCyclic}) {
      EXPECT_EQ(outputs(q, k, kH, map, implementation),
                outputs(per_value_head(q, map), per_value_head(k, map), kHV, HeadMap::kBlock,
                        implementation));
    }
    EXPECT_NE(outputs(q, k, kH, HeadMap::kBlock, implementation),
              outputs(q, k, kH, HeadMap::kCyclic, implementation));
  }
}

}  // namespace
}  // namespace sluice::check
