// Measures the workspace of gradients by tensor cores, and the waves of heads and batch entries that
// share it. Host code alone; nothing is launched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

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
  ChunkBackwardProblem two = training({1, 16384, 1, 4});
  two.forward.rows.cu_seqlens = view({0, 32}, {3}), two.forward.rows.N = 2;
  EXPECT_EQ(plan_split(two, SLUICE_SPLIT_SEGMENTS, 8).workspace_bytes -
                plan_split(two, SLUICE_SPLIT_NEVER).workspace_bytes,
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

/// Of a single sequence or of a pack.
TEST(BackwardPlan, OneKeyHeadHasWhatItNeeds) {
  const Sizes s{1, 4096, 1, 4};
  ChunkBackwardProblem pack = training(s);
  pack.forward.rows.cu_seqlens = view({0, 32}, {3}), pack.forward.rows.N = 2;
  for (const ChunkBackwardProblem& b : {training(s), pack}) {
    const size_t bytes = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_GT(bytes, 1536 * rows_of(s));
    EXPECT_LT(bytes, 2304 * rows_of(s));
  }
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

// ------------------------------------------------------------------------------- waves ----

ChunkBackwardProblem cyclic(const Sizes& s) {
  ChunkBackwardProblem b = training(s);
  b.forward.head_map = SLUICE_HEAD_MAP_CYCLIC;
  return b;
}

TEST(BackwardWaves, CyclicHeadsHaveNoMore) {
  for (const Sizes& s : {Sizes{1, 8192, 16, 32}, Sizes{1, 4096, 16, 64}, Sizes{2, 4096, 6, 18},
                         Sizes{1, 8192, 2, 4}}) {
    ChunkBackwardProblem b = cyclic(s);
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * rows_of(s)) << s.H << " " << s.HV;
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, s.H / 2);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, s.B);
  }
}

/// Waves of cyclic maps have a divisor of H.
TEST(BackwardWaves, CyclicHeadsAreCutEvenly) {
  ChunkBackwardProblem b = cyclic({1, 4096, 15, 30});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 5);
  b = cyclic({1, 4096, 7, 14});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 1);
  // Of one value head a key head they neighbour each other.
  b = cyclic({1, 4096, 15, 15});
  misalign(&b);
  EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 8);
}

/// States of a pool are neighbours, and gates of some views lie in groups.
TEST(BackwardWaves, CyclicHeadsThatNoStepReachesAreOneWave) {
  const Sizes s{1, 4096, 16, 32};
  ChunkBackwardProblem states = cyclic(s), groups = cyclic(s);
  states.d_final = view({2, 32}, {1, 32, 128, 128});
  groups.dbeta.stride[2] = 5, groups.dbeta.stride[1] = 80, groups.dbeta.stride[0] = 80 * 4096;
  for (ChunkBackwardProblem b : {states, groups}) {
    misalign(&b);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, 16);
    EXPECT_GT(plan_of(b).workspace_bytes, 1536 * rows_of(s));
    EXPECT_LT(plan_of(b).workspace_bytes, 2304 * rows_of(s));
  }
}

/// Where heads are as few as can be.
TEST(BackwardWaves, BatchEntriesAreCutBehindHeads) {
  ChunkBackwardProblem states = cyclic({4, 4096, 16, 32});
  states.forward.state.initial = view({2, 32}, {4, 32, 128, 128});
  for (ChunkBackwardProblem b :
       {training({2, 4096, 1, 4}), training({8, 4096, 1, 4}), training({3, 4096, 1, 4}), states}) {
    const core::Rows& rows = b.forward.rows;
    const size_t count = rows_of({rows.B, rows.T, 0, b.forward.HV});
    const size_t any = plan_of(b, PlanFor::kAnyAddress).workspace_bytes;
    EXPECT_LE(any, 1536 * count) << rows.B << " " << b.forward.HV;
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, rows.B);
    misalign(&b);
    EXPECT_EQ(plan_of(b).workspace_bytes, any);
    EXPECT_EQ(plan_of(b).kept<Waves>().entries, (rows.B + 1) / 2);
    EXPECT_EQ(plan_of(b).kept<Waves>().key_heads, b.forward.H);
  }
}

TEST(BackwardWaves, ManyBatchEntriesHaveTwoGibibytes) {
  for (const Sizes& s :
       {Sizes{1024, 2048, 1, 4}, Sizes{100000, 100, 1, 1}, Sizes{512, 4096, 4, 8}}) {
    const Plan plan = plan_of(training(s));
    EXPECT_LE(plan.workspace_bytes, size_t{1} << 31);
    EXPECT_GE(plan.workspace_bytes, size_t{1} << 30);
    EXPECT_EQ(plan.kept<Waves>().key_heads, 1);
    EXPECT_LT(plan.kept<Waves>().entries, s.B);
    EXPECT_EQ(plan.workspace_bytes, plan_of(training(s), PlanFor::kAnyAddress).workspace_bytes);
  }
}

/// What the largest of a call's waves needs.
size_t most_bytes(const ChunkBackwardProblem& b, const Waves& waves) {
  size_t most = 0;
  const int64_t B = b.forward.rows.B;
  for (int64_t number = 0; number * waves.key_heads < b.forward.H; ++number) {
    const ChunkBackwardProblem heads = heads_of_wave(b, number, waves.key_heads);
    for (int64_t entry = 0; entry < B; entry += waves.entries) {
      const auto wave = entries_of_wave(heads, entry, std::min(waves.entries, B - entry));
      BackwardWorkspace workspace(wave.forward, nullptr);
      backward::BackwardParams params = lower_backward(wave);
      place_head_sums(heads.forward, entry, workspace, &params);
      place_tiles(wave.forward, WhichAddresses::kThese, workspace, &params);
      most = std::max(most, workspace.bytes());
    }
  }
  return most;
}

/// Heads 132 numbers apart: those of every second wave lie where the copy engine cannot read them.
TEST(BackwardWaves, EveryWaveFits) {
  for (ChunkBackwardProblem b : {training({160, 8192, 2, 2}), cyclic({1, 65536, 32, 256})}) {
    for (Tensor* t : {&b.forward.q, &b.forward.k, &b.forward.v, &b.d_o, &b.dq, &b.dk, &b.dv}) {
      t->stride[2] = 132, t->stride[1] = 136 * t->shape[2];
      t->stride[0] = t->shape[1] * t->stride[1];
    }
    b.forward.A_log = b.forward.dt_bias = b.dA_log = b.ddt_bias = view({2, 32}, {b.forward.HV});
    const Plan plan = plan_of(b);
    const auto waves = plan.kept<Waves>();
    EXPECT_LT(waves.key_heads, b.forward.H);
    EXPECT_LE(most_bytes(b, waves), plan.workspace_bytes);
  }
}

int64_t offset(const Tensor& part, const Tensor& whole) {
  return static_cast<std::byte*>(part.data) - static_cast<std::byte*>(whole.data);
}

TEST(BackwardWaves, AWaveHasTheHeadsOfItsKeys) {
  ChunkBackwardProblem all = training({1, 64, 16, 32});
  all.d_final = view({2, 32}, {1, 32, 128, 128});
  const ChunkBackwardProblem b = heads_of_wave(all, 1, 5);
  EXPECT_EQ(b.forward.H, 5);
  EXPECT_EQ(b.forward.HV, 10);
  EXPECT_EQ(offset(b.forward.q, all.forward.q), 5 * 128 * 2);
  EXPECT_EQ(offset(b.dv, all.dv), 10 * 128 * 2);
  EXPECT_EQ(offset(b.dgate, all.dgate), 10 * 4);
  EXPECT_EQ(offset(b.d_final, all.d_final), 10 * 128 * 128 * 4);
  EXPECT_EQ(b.forward.A_log.data, nullptr);
  EXPECT_EQ(heads_of_wave(all, 3, 5).forward.H, 1);
  EXPECT_EQ(heads_of_wave(all, 3, 5).dv.shape[2], 2);
}

/// Of 12 key heads in waves of three: 2, 6, 10, and the value heads 2, 6, .., 22.
TEST(BackwardWaves, AWaveOfACyclicMapHasEveryFourthHead) {
  ChunkBackwardProblem all = cyclic({1, 64, 12, 24});
  all.forward.A_log = all.ddt_bias = view({2, 32}, {24});
  const ChunkBackwardProblem b = heads_of_wave(all, 2, 3);
  EXPECT_EQ(b.forward.H, 3);
  EXPECT_EQ(b.forward.HV, 6);
  for (const auto& [part, whole] : {std::pair{b.forward.k, all.forward.k}, {b.dv, all.dv}}) {
    EXPECT_EQ(offset(part, whole), 2 * 128 * 2);
    EXPECT_EQ(part.stride[2], 4 * 128);
    EXPECT_EQ(part.stride[1], whole.stride[1]);
  }
  EXPECT_EQ(b.dk.shape[2], 3);
  EXPECT_EQ(b.d_o.shape[2], 6);
  EXPECT_EQ(offset(b.dgate, all.dgate), 2 * 4);
  EXPECT_EQ(b.dgate.stride[2], 4);
  EXPECT_EQ(b.dgate.shape[2], 6);
  EXPECT_EQ(b.dgate.shape[3], 1);
  EXPECT_EQ(offset(b.ddt_bias, all.ddt_bias), 2 * 4);
  EXPECT_EQ(b.ddt_bias.stride[0], 4);
  for (int64_t head = 0; head < 6; ++head) {
    EXPECT_EQ(2 + 4 * b.forward.key_head(head), all.forward.key_head(2 + 4 * head));
  }
}

TEST(BackwardWaves, AWaveOfEntriesHasTheirRowsStatesAndSegments) {
  ChunkBackwardProblem all = training({5, 64, 1, 4});
  all.dinitial = view({2, 32}, {5, 4, 128, 128});
  all.dA_log = view({2, 32}, {4});
  const ChunkBackwardProblem b = entries_of_wave(all, 3, 2);
  EXPECT_EQ(b.forward.rows.B, 2);
  EXPECT_EQ(b.forward.rows.N, 2);
  EXPECT_EQ(offset(b.forward.q, all.forward.q), 3 * 64 * 128 * 2);
  EXPECT_EQ(offset(b.dbeta, all.dbeta), 3 * 64 * 4 * 4);
  EXPECT_EQ(offset(b.dinitial, all.dinitial), 3 * 4 * 128 * 128 * 4);
  EXPECT_EQ(b.dinitial.shape[0], 2);
  EXPECT_EQ(offset(b.dA_log, all.dA_log), 0);
  backward::SegmentCut cut{};
  cut.length = 4, cut.slots = 35, cut.boundaries = 30;
  const backward::SegmentCut two = cut_of_wave(cut, 5, 2);
  EXPECT_EQ(two.length, 4);
  EXPECT_EQ(two.slots, 14);
  EXPECT_EQ(two.boundaries, 12);
}

}  // namespace
}  // namespace sluice::cuda
