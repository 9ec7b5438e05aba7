// Measures what sums of gates hold where a gate is NaN and where offsets pass the rows, by a model of
// the tests' own.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kHeads = 2;

/// chunk_cumsum of `rows` rows of both.
void sum_gates(const std::vector<float>& gates, const std::vector<int32_t>& offsets, int64_t rows,
               std::vector<float>* sums) {
  ChunkStageArgs args;
  args.implementation = Implementation::kCuda;
  args.gate = TensorView(gates.data(), kFloat32, {1, rows, kHeads}, cuda_device());
  args.g_cumsum = TensorView(sums->data(), kFloat32, {1, rows, kHeads}, cuda_device());
  if (!offsets.empty()) {
    const auto count = static_cast<int64_t>(offsets.size());
    args.cu_seqlens = TensorView(offsets.data(), kInt32, {count}, cuda_device());
  }
  HostWorkspace memory;
  const Status status =
      chunk_stage(args, memory.reserve(workspace_size(args).value.bytes), nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
}

TEST(EmulatedStageEdges, NanOfAGateReachesItsHeadToTheEndOfTheChunk) {
  constexpr int64_t kRows = 130, kToken = 5;
  std::vector<float> gates(kRows * kHeads, -1.0f), sums(gates);
  gates[kToken * kHeads + 1] = std::numeric_limits<float>::quiet_NaN();
  sum_gates(gates, {}, kRows, &sums);
  for (int64_t t = 0; t < kRows; ++t) {
    const auto sum = static_cast<float>(-(t % 64 + 1));
    const auto at = static_cast<size_t>(t * kHeads);
    EXPECT_EQ(sums[at], sum) << t;
    EXPECT_EQ(std::isnan(sums[at + 1]), t >= kToken && t < 64) << t;
  }
}

TEST(EmulatedStageEdges, OffsetsPastTheRowsEndThere) {
  // On a GPU nobody has looked at the offsets.
  constexpr int64_t kRows = 80;
  const std::vector<float> gates(130 * kHeads, -1.0f);
  std::vector<float> sums(gates.size(), 7.0f);
  sum_gates(gates, {0, 70, 110}, kRows, &sums);
  for (int64_t t = 0; t < 130; ++t) {
    const int64_t of_sequence = t < 70 ? t % 64 + 1 : t - 69;
    const float expected = t < kRows ? -static_cast<float>(of_sequence) : 7.0f;
    EXPECT_EQ(sums[static_cast<size_t>(t * kHeads)], expected) << t;
  }
}

}  // namespace
}  // namespace sluice::check
