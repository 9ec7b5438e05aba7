// Checks on the emulated kernels that offsets which do not ascend reach no memory past a gradient's.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda::backward {
namespace {

/// Of 40 sequences every other one goes back to the first row: the others have three chunks each,
/// more than the rows have with an end for each sequence.
TEST(BackwardOffsets, ThatDoNotAscendHaveNoMaximaPastTheLast) {
  constexpr int64_t kT = 130, kN = 40, kHV = 2, kSlots = kT / kTokens + kN;
  constexpr size_t kCount = kSlots * kHV, kMore = 64 * kHV;
  std::vector<uint16_t> d_o(kT * kHV * kTileSize, 0x3C00);  // 1
  std::vector<int32_t> offsets(kN + 1, 0);
  for (size_t n = 1; n < offsets.size(); n += 2) offsets[n] = kT;
  std::vector<float> maxima(kCount + kMore, -1.0f);

  BackwardParams p{};
  p.stage.cu_seqlens = {offsets.data(), 1, false};
  p.stage.N = kN, p.stage.T = kT, p.stage.H = p.stage.HV = kHV, p.stage.r = 1;
  p.stage.K = p.stage.V = kTileSize, p.stage.slots = kSlots, p.stage.C = kTokens;
  p.d_o = {d_o.data(), kT * kHV * kTileSize, kHV * kTileSize, kTileSize, Number::kFloat16};
  p.maxima = maxima.data();
  const Machine machine{0, kHopperCapability, 132, {}};
  Launcher launcher("chunk_backward", machine, nullptr);
  launch_maxima(p, launcher);
  ASSERT_TRUE(launcher.ok());

  const auto end = maxima.begin() + kCount;
  EXPECT_TRUE(std::all_of(end, maxima.end(), [](float x) { return x == -1.0f; }));
  EXPECT_TRUE(std::all_of(maxima.begin(), end, [](float x) { return x == -1.0f || x == 1.0f; }));
  EXPECT_EQ(maxima.front(), 1.0f);
}

}  // namespace
}  // namespace sluice::cuda::backward
