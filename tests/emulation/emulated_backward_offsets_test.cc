// Checks on the emulated kernels that offsets which do not ascend reach no memory past that of gradients.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda::backward {
namespace {

/// Of 40 sequences every other one goes back to the first row: the others have three chunks each,
/// more than the rows have with an end for each sequence.
struct Offsets {
  static constexpr int64_t kT = 130, kN = 40, kHV = 2, kSlots = kT / kTokens + kN;
  static constexpr size_t kCount = kSlots * kHV, kMore = 64 * kHV;
  std::vector<int32_t> values = std::vector<int32_t>(kN + 1, 0);

  Offsets() {
    for (size_t n = 1; n < values.size(); n += 2) values[n] = kT;
  }
  BackwardParams params() const {
    BackwardParams p{};
    p.stage.cu_seqlens = {values.data(), 1, false};
    p.stage.N = kN, p.stage.T = kT, p.stage.H = p.stage.HV = kHV, p.stage.r = 1;
    p.stage.K = p.stage.V = kTileSize, p.stage.slots = kSlots, p.stage.C = kTokens;
    return p;
  }
};

Launcher launcher() {
  static const Machine machine{0, kHopperCapability, 132, {}};
  return Launcher("chunk_backward", machine, nullptr);
}

TEST(BackwardOffsets, ThatDoNotAscendHaveNoMaximaPastTheLast) {
  const Offsets offsets;
  BackwardParams p = offsets.params();
  std::vector<uint16_t> d_o(Offsets::kT * Offsets::kHV * kTileSize, 0x3C00);  // 1
  p.d_o = {d_o.data(), Offsets::kT * Offsets::kHV * kTileSize, Offsets::kHV * kTileSize, kTileSize,
           Number::kFloat16};
  std::vector<float> maxima(Offsets::kCount + Offsets::kMore, -1.0f);
  p.maxima = maxima.data();
  Launcher launch = launcher();
  launch_maxima(p, launch);
  ASSERT_TRUE(launch.ok());

  const auto end = maxima.begin() + Offsets::kCount;
  EXPECT_TRUE(std::all_of(end, maxima.end(), [](float x) { return x == -1.0f; }));
  EXPECT_TRUE(std::all_of(maxima.begin(), end, [](float x) { return x == -1.0f || x == 1.0f; }));
  EXPECT_EQ(maxima.front(), 1.0f);
}

TEST(BackwardOffsets, ThatDoNotAscendHaveNoSumsPastTheLast) {
  const Offsets offsets;
  BackwardParams p = offsets.params();
  std::vector<float> sums(2 * (Offsets::kCount + Offsets::kMore), 1.0f), found(Offsets::kHV);
  std::fill(sums.begin() + 2 * Offsets::kCount, sums.end(),
            std::numeric_limits<float>::quiet_NaN());
  p.chunk_sums = sums.data();
  p.ddt_bias = {found.data(), 1, Number::kFloat32};
  Launcher launches = launcher();
  launch(Kernel::kChunkSums, p, launches);
  ASSERT_TRUE(launches.ok());
  for (const float sum : found) EXPECT_EQ(sum, static_cast<float>(Offsets::kSlots));
}

}  // namespace
}  // namespace sluice::cuda::backward
