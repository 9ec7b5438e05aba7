// Measures the workspace of gradients by tensor cores and how sequences are cut. Host code alone; nothing
// is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string_view>

#include "backward_problems.hpp"
#include "cuda/chunk_backward/lower.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda {
namespace {

TEST(BackwardPlan, AtMostOneAndAHalfKilobytesATokenAndValueHead) {
  for (const Sizes& s : {Sizes{1, 8192, 16, 32}, Sizes{1, 32768, 16, 32}, Sizes{1, 8192, 16, 16},
                         Sizes{2, 4096, 8, 16}, Sizes{1, 8192, 2, 4}, Sizes{1, 32768, 2, 4},
                         Sizes{1, 8192, 4, 8}, Sizes{4, 8192, 2, 4}}) {
    ChunkBackwardProblem b = training(s);
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * rows_of(s)) << s.T << " " << s.H << " " << s.HV;
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    // Cut or not.
    EXPECT_TRUE(std::string_view(plan_of(b).kernel).starts_with("cuda.chunk_backward.sm_90."));
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H / 2);
  }
}

/// Every shape that validation lets pass: products below 2^52 with the widest dimension squared.
TEST(BackwardPlan, SizesOfHugeShapesDoNotWrap) {
  for (int64_t T = 1 << 12; T <= int64_t{1} << 30; T *= 4) {
    for (int64_t HV = 1; T * HV < int64_t{1} << 38; HV *= 8) {
      const Sizes s{1, T, HV, HV};
      const Plan plan = plan_of(training(s), PlanFor::kAnyAddress);
      EXPECT_LE(plan.workspace_bytes, 8192 * rows_of(s)) << plan.kernel << " " << T << " " << HV;
      EXPECT_GE(plan.workspace_bytes, 256 * static_cast<size_t>(T)) << plan.kernel << " " << HV;
    }
  }
}

TEST(BackwardPlan, OtherGradientsThanItsTypeOnlyBfloat16Copies) {
  ChunkBackwardProblem b = training({1, 512, 2, 4});
  b.d_o = view({2, 32}, {1, 512, 4, 128});
  EXPECT_STREQ(plan_of(b).kernel, "cuda.chunk_backward.sm_90.bf16.k128");
  for (Tensor* t : {&b.forward.q, &b.forward.k, &b.forward.v}) t->dtype = {2, 16};
  EXPECT_STREQ(plan_of(b).kernel, "cuda.chunk_backward.plain");
}

TEST(BackwardPlan, HalfTilesTakeTensorCoresByBothRules) {
  ChunkBackwardProblem b = training({1, 512, 2, 4});
  for (Tensor* t : {&b.forward.q, &b.forward.k, &b.forward.v, &b.d_o, &b.dq, &b.dk, &b.dv}) {
    *t = view(t->dtype, {1, 512, t->shape[2], 64});
  }
  b.forward.K = b.forward.V = 64;
  EXPECT_STREQ(plan_of(b).kernel, "cuda.chunk_backward.sm_90.bf16.k64");
  EXPECT_LE(plan_of(b).workspace_bytes, 1536 * rows_of({1, 512, 2, 4}));
  b.forward.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_STREQ(plan_of(b).kernel, "cuda.chunk_backward.sm_90.bf16.k64");
}

TEST(BackwardPlan, AtMostTwoGibibytesWhereHeadsAreLeftThatFillTheGpu) {
  const ChunkBackwardProblem b = training({4, 8192, 16, 64});
  const Plan plan = plan_of(b);
  EXPECT_LE(plan.workspace_bytes, size_t{1} << 31);
  const auto waves = plan.kept<Waves>();
  EXPECT_EQ(waves.key_heads, 8);  // 16 in two waves
  EXPECT_EQ(plan_of(training({4, 8192, 16, 32})).kept<Waves>().key_heads, 16);
  // One sequence has not: the GPU wants more of its heads than there are.
  EXPECT_EQ(plan_of(training({1, 32768, 16, 32})).kept<Waves>().key_heads, 16);
}

Plan plan_split(ChunkBackwardProblem b, sluice_split split, int32_t value = 0) {
  b.forward.split = split, b.forward.split_value = value;
  return plan_of(b, PlanFor::kAnyAddress);
}

TEST(BackwardPlan, SegmentsAreNamedAndHaveTheirBoundaries) {
  const Sizes s{1, 8192, 1, 4};
  const Plan whole = plan_split(training(s), SLUICE_SPLIT_NEVER),
             cut = plan_split(training(s), SLUICE_SPLIT_SEGMENTS, 8);
  EXPECT_STREQ(whole.kernel, "cuda.chunk_backward.sm_90.bf16.k128");
  EXPECT_EQ(whole.kept<Waves>().cut.boundaries, 0);
  EXPECT_STREQ(cut.kernel, "cuda.chunk_backward.sm_90.bf16.k128.segments");
  EXPECT_EQ(cut.kept<Waves>().cut.length, 16);
  EXPECT_EQ(cut.kept<Waves>().cut.boundaries, 7);
  // A state and a gradient at each, but for bytes that rows leave; of several sequences the segments'
  // matrices too, twice.
  constexpr size_t kMatrix = 128 * 128 * 4, kLeft = 96;
  EXPECT_EQ(cut.workspace_bytes - whole.workspace_bytes, 4 * (7 * 2 * kMatrix - 8192 * kLeft));
  ChunkBackwardProblem two = training({1, 16384, 1, 4});
  two.forward.rows.cu_seqlens = view({0, 32}, {3}), two.forward.rows.N = 2;
  EXPECT_EQ(plan_split(two, SLUICE_SPLIT_SEGMENTS, 8).workspace_bytes -
                plan_split(two, SLUICE_SPLIT_NEVER).workspace_bytes,
            4 * (14 * 4 * kMatrix - (16384 + 2 * 64) * kLeft));
}

/// Rows beside a sequence change nothing of how it is cut.
TEST(BackwardPlan, LengthDependsOnHeadsAlone) {
  for (const Sizes& s : {Sizes{1, 2048, 2, 4}, Sizes{1, 65536, 2, 4}, Sizes{3, 2048, 2, 4}}) {
    EXPECT_EQ(plan_split(training(s), SLUICE_SPLIT_LENGTH).kept<Waves>().cut.length, 16);
  }
  EXPECT_EQ(
      plan_split(training({1, 8192, 2, 4}), SLUICE_SPLIT_LENGTH, 128).kept<Waves>().cut.length, 2);
}

TEST(BackwardPlan, OnlyFewHeadsOfLongSequencesAreCutUnasked) {
  const auto is_cut = [](const Sizes& s) {
    return plan_split(training(s), SLUICE_SPLIT_AUTO).kept<Waves>().cut.exists();
  };
  EXPECT_TRUE(is_cut({1, 32768, 2, 4}));
  EXPECT_TRUE(is_cut({1, 8192, 2, 4}));
  EXPECT_FALSE(is_cut({1, 512, 2, 4}));
  EXPECT_FALSE(is_cut({16, 8192, 2, 4}));
  EXPECT_FALSE(is_cut({1, 8192, 16, 64}));
}

/// Nothing of these depends on what a call has beside a sequence.
TEST(BackwardPlan, SimpleGlaAndGradientsOfInitialStatesAloneAreNotCut) {
  ChunkBackwardProblem b = training({1, 8192, 2, 4});
  b.forward.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_FALSE(plan_split(b, SLUICE_SPLIT_SEGMENTS, 4).kept<Waves>().cut.exists());
  b = training({1, 8192, 2, 4});
  b.dq = b.dk = b.dv = b.dgate = b.dbeta = {};
  EXPECT_FALSE(plan_split(b, SLUICE_SPLIT_SEGMENTS, 4).kept<Waves>().cut.exists());
}

/// Beside chains of one launch, or of segments; behind chains that follow each other, with heads of
/// 64, and of simple GLA, which has one chain.
TEST(BackwardPlan, GradientsBeginEarlyBesideChainsOfOneLaunch) {
  const auto early = [](const ChunkBackwardProblem& b, const backward::SegmentCut& cut = {}) {
    backward::BackwardParams p = lower_backward(b);
    p.cut = cut;
    return backward::has_early_gradients(p, 132);
  };
  ChunkBackwardProblem b = training({1, 8192, 16, 32});
  EXPECT_TRUE(early(b));
  EXPECT_FALSE(early(training({4, 8192, 16, 32})));
  backward::SegmentCut cut{};
  cut.slots = 40;
  EXPECT_TRUE(early(training({4, 8192, 16, 32}), cut));
  b.forward.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_FALSE(early(b));
  b.forward.rule = SLUICE_RULE_GATED_DELTA;
  b.forward.K = b.forward.V = 64;
  EXPECT_FALSE(early(b));
}

}  // namespace
}  // namespace sluice::cuda
