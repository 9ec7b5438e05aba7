// Measures the workspace of gradients by tensor cores, and the waves of heads that share it. Host
// code alone; nothing is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "cuda/catalogues.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/chunk_backward/waves.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda {
namespace {

using core::ChunkBackwardProblem, core::Plan, core::PlanFor, core::Tensor;

/// A dense view; of its address only what it is a multiple of counts.
Tensor view(sluice_dtype dtype, std::initializer_list<int64_t> shape) {
  Tensor t{};
  t.data = reinterpret_cast<void*>(uintptr_t{4096});
  t.dtype = dtype;
  t.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  int64_t step = 1;
  for (int axis = t.rank; axis-- > 0; step *= t.shape[axis]) t.stride[axis] = step;
  return t;
}

struct Sizes {
  int64_t B, T, H, HV;
};

/// A training call: normalised keys, gates, write strengths, all gradients of rows.
ChunkBackwardProblem training(const Sizes& s) {
  constexpr sluice_dtype kBf16{4, 16}, kFloat{2, 32};
  ChunkBackwardProblem b;
  core::DeltaRuleProblem& p = b.forward;
  p.rows = {s.B, s.T, s.B, {}, s.T};
  p.H = s.H, p.HV = s.HV, p.r = s.HV / s.H, p.K = p.V = 128;
  p.qk_norm = SLUICE_QK_NORM_L2;
  p.q = p.k = b.dq = b.dk = view(kBf16, {s.B, s.T, s.H, 128});
  p.v = b.d_o = b.dv = view(kBf16, {s.B, s.T, s.HV, 128});
  p.gate = p.beta = b.dgate = b.dbeta = view(kFloat, {s.B, s.T, s.H, p.r});
  return b;
}

void misalign(ChunkBackwardProblem* b) {
  for (Tensor* t : {&b->forward.q, &b->forward.k, &b->forward.v, &b->d_o, &b->dq, &b->dk, &b->dv}) {
    t->data = static_cast<std::byte*>(t->data) + 2;
  }
}

Plan plan_of(const ChunkBackwardProblem& b, PlanFor purpose = PlanFor::kCall) {
  Plan plan;
  const Status status =
      plan_by(chunk_backward_catalogue(), b, {0, 90, 132, {}}, {}, purpose, &plan);
  EXPECT_TRUE(status.ok()) << status.message;
  return plan;
}

size_t rows_of(const Sizes& s) { return static_cast<size_t>(s.B * s.T * s.HV); }

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
  // A state and a gradient at each; of several sequences the segments' matrices too, twice.
  EXPECT_EQ(cut.workspace_bytes - whole.workspace_bytes, 7u * 4 * 2 * 128 * 128 * 4);
  const Sizes two{2, 8192, 1, 4};
  EXPECT_EQ(plan_split(training(two), SLUICE_SPLIT_SEGMENTS, 8).workspace_bytes -
                plan_split(training(two), SLUICE_SPLIT_NEVER).workspace_bytes,
            14u * 4 * 4 * 128 * 128 * 4);
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

TEST(BackwardPlan, OneKeyHeadHasWhatItNeeds) {
  const Sizes s{1, 4096, 1, 4};
  const Plan plan = plan_of(training(s), PlanFor::kAnyAddress);
  EXPECT_GT(plan.workspace_bytes, 1536 * rows_of(s));
  EXPECT_LT(plan.workspace_bytes, 2304 * rows_of(s));
}

TEST(BackwardPlan, HeadsThatDoNotNeighbourEachOtherAreOneWave) {
  const Sizes s{1, 4096, 16, 32};
  ChunkBackwardProblem b = training(s);
  b.forward.head_map = SLUICE_HEAD_MAP_CYCLIC;
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 16);
  EXPECT_LT(plan_of(b).workspace_bytes, 2304 * rows_of(s));
}

TEST(BackwardPlan, AWaveHasTheHeadsOfItsKeys) {
  const ChunkBackwardProblem all = training({1, 64, 16, 32});
  const ChunkBackwardProblem b = wave_of(all, 5, 3);
  EXPECT_EQ(b.forward.H, 3);
  EXPECT_EQ(b.forward.HV, 6);
  const auto offset = [](const Tensor& part, const Tensor& whole) {
    return static_cast<std::byte*>(part.data) - static_cast<std::byte*>(whole.data);
  };
  EXPECT_EQ(offset(b.forward.q, all.forward.q), 5 * 128 * 2);
  EXPECT_EQ(offset(b.dv, all.dv), 10 * 128 * 2);
  EXPECT_EQ(offset(b.dgate, all.dgate), 10 * 4);
  EXPECT_EQ(b.forward.A_log.data, nullptr);
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
