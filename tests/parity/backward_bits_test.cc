// Compares bits of chunk_backward's gradients: the same call twice, other strides, rows and heads that
// nobody may touch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "parity/backward_call.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// Bits, NaN included.
bool same_bits(const Array& a, const Array& b) {
  return std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)) == 0;
}

TEST(ChunkBackwardBits, TwiceTheSame) {
  BackwardConfig c;
  c.T = 200, c.H = 2, c.HV = 6, c.gate_space = SLUICE_GATE_RAW;
  const auto implementation = implementations_under_test().front();
  const BackwardResult first = run_backward(c, implementation);
  const BackwardResult second = run_backward(c, implementation, {}, 0x00);
  ASSERT_EQ(first.code, SLUICE_OK) << first.message;
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(first.gradients[i].second, second.gradients[i].second))
        << first.gradients[i].first;
  }
}

/// Strides decide what is copied, and how many heads go through the workspace at once.
TEST(ChunkBackwardBits, TheSameWhereverRowsLie) {
  BackwardConfig c;
  c.T = 130, c.H = 4, c.HV = 8, c.K = c.V = 128, c.io = c.d_o = kBF16;
  c.qk_norm = SLUICE_QK_NORM_L2, c.gate_space = SLUICE_GATE_RAW;
  const auto implementation = implementations_under_test().front();
  const BackwardResult dense = run_backward(c, implementation, kBF16);
  c.apart = true;
  const BackwardResult apart = run_backward(c, implementation, kBF16);
  ASSERT_EQ(dense.code, SLUICE_OK) << dense.message;
  ASSERT_EQ(apart.code, SLUICE_OK) << apart.message;
  EXPECT_EQ(apart.kernel, dense.kernel);
  EXPECT_EQ(apart.damage, "");
  for (size_t i = 0; i < dense.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(dense.gradients[i].second, apart.gradients[i].second))
        << dense.gradients[i].first;
  }
}

TEST(ChunkBackwardBits, RowsPastTheLastSequenceStay) {
  BackwardConfig c;
  c.T = 90, c.HV = 4, c.lengths = {3, 70};
  // WHY zeros: sums of what nobody wrote would be NaN, as outputs are before the call.
  const BackwardResult found = run_backward(c, implementations_under_test().front(), {}, 0x00);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  EXPECT_EQ(found.damage, "");
  for (const auto& [name, x] : found.gradients) {
    if (x.shape.size() < 2 || x.shape[1] != c.T) continue;
    const int64_t row = x.size() / c.T;
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::isnan(x.values[static_cast<size_t>(i)]), i / row >= 73) << name << " " << i;
    }
  }
}

TEST(ChunkBackwardBits, HeadsDoNotMeet) {
  BackwardConfig c;
  c.T = 100, c.H = 2, c.HV = 2, c.not_a_number = 50;
  const BackwardResult found = run_backward(c, implementations_under_test().front());
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  for (const auto& [name, x] : found.gradients) {
    const int64_t inner = name == "dinitial" ? c.K * c.V : x.shape.size() == 4 ? x.shape[3] : 1;
    for (int64_t i = 0; i < x.size(); ++i) {
      if (i / inner % 2 == 0) continue;
      ASSERT_FALSE(std::isnan(x.values[static_cast<size_t>(i)])) << name << " of the other head";
    }
  }
}

/// Every multiprocessor of a GPU has chunks one after the other, beside all others.
TEST(ChunkBackwardBits, TwiceTheSameOnAllMultiprocessors) {
  const auto implementation = implementations_under_test().front();
  BackwardConfig c;
  c.T = implementation == SLUICE_IMPL_CUDA ? 8192 : 192, c.H = 16, c.HV = 32, c.K = c.V = 128;
  c.io = c.d_o = c.gradient = kBF16, c.qk_norm = SLUICE_QK_NORM_L2;
  c.initial = c.d_final = false;
  const BackwardResult first = run_backward(c, implementation);
  const BackwardResult second = run_backward(c, implementation, {}, 0x00);
  ASSERT_EQ(first.code, SLUICE_OK) << first.message;
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(first.gradients[i].second, second.gradients[i].second))
        << first.gradients[i].first;
  }
}

}  // namespace
}  // namespace sluice::check
