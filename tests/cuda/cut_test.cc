// Measures how a call's sequences are spread over a GPU, as far as the host decides: what caller
// and environment ask for, what the workspace holds, and what the model of time prefers.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/cut.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::CutRequest, device::CutRule;

constexpr int kH200 = 132;  ///< its multiprocessors
constexpr ResidentClusters kClusters{66, 30, 17, 15};

Machine h200(const ResidentClusters& clusters) { return {0, kHopperCapability, kH200, clusters}; }

/// Packed sequences of T tokens in all; only sizes matter.
DeltaRuleProblem packed(int64_t N, int64_t T, int64_t HV) {
  static int64_t present;
  DeltaRuleProblem p;
  p.rows = {1, T, N, {}, T};
  p.rows.cu_seqlens.data = &present;
  p.HV = HV;
  p.K = p.V = 128;
  p.beta.data = &present;
  return p;
}

/// packed() whose longest sequence is known.
DeltaRuleProblem bounded(int64_t N, int64_t T, int64_t HV, int64_t longest) {
  DeltaRuleProblem p = packed(N, T, HV);
  p.rows.longest = longest;
  return p;
}

DeltaRuleProblem dense(int64_t B, int64_t T, int64_t HV) {
  DeltaRuleProblem p = packed(B, T, HV);
  p.rows = {B, T, B, {}, T};
  return p;
}

/// What SLUICE_CUDA_SPLIT and SLUICE_CUDA_HISTORY ask for.
Status parse_cut(const char* split, const char* history, CutOverride* cut) {
  const Environment parsed = parse_environment(nullptr, split, history);
  *cut = parsed.cut;
  return parsed.status;
}

CutRequest request_of(const DeltaRuleProblem& p, const CutOverride& asked = {}) {
  return choose_cut(p, h200(kClusters), asked);
}

/// WHY by turns: the last answer of the model is remembered.
TEST(CudaCut, KeyWiseGatesForgetWhereScalarOnesMayNot) {
  DeltaRuleProblem scalar = dense(1, 8192, 12);
  scalar.qk_norm = SLUICE_QK_NORM_L2;
  scalar.beta = {};
  DeltaRuleProblem key_wise = scalar;
  static int64_t present;
  key_wise.key_gate.data = &present;
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_FALSE(request_of(scalar).may_forget);
    EXPECT_TRUE(request_of(key_wise).may_forget);
    EXPECT_EQ(request_of(key_wise).count, request_of(scalar).count);
  }
}

TEST(CudaCut, FewHeadsAndLongSequencesAreCut) {
  for (const int64_t HV : {2, 4, 8, 16}) {
    const CutRequest request = request_of(packed(1, 32768, HV));
    EXPECT_EQ(request.rule, CutRule::kEqual) << HV;
    EXPECT_GT(request.most_boundaries, 0);
    EXPECT_LE(request.most_boundaries * HV, 3 * kH200);
    EXPECT_EQ(request.most_boundaries, request.count - 1);
    EXPECT_EQ(request_of(dense(1, 32768, HV)).count, request.count) << HV;
    EXPECT_EQ(request_of(packed(2, 65536, HV)).rule, CutRule::kModel) << HV;
  }
}

TEST(CudaCut, FullGpusAndShortSequencesAreNot) {
  EXPECT_EQ(request_of(dense(8, 8192, 64)).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(dense(1, 256, 4)).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(packed(1, 0, 4)).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(packed(0, 0, 4)).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(packed(4, 8192, 256)).rule, CutRule::kWhole);
}

TEST(CudaCut, ColumnsWhereHeadsLeaveMultiprocessorsIdle) {
  EXPECT_EQ(request_of(dense(1, 200, 8)).columns, 64);
  EXPECT_EQ(request_of(dense(8, 8192, 64)).columns, 128);
  DeltaRuleProblem p = dense(8, 8192, 64);
  p.V = 64;
  EXPECT_EQ(request_of(p).columns, 64);
}

/// 192 items: 132, and 60 that fit the GPU as 120 halves. Not: short ones, 256, unknown lengths.
TEST(CudaCut, TheLastRoundIsHalvedWhereHalfTheGpuWouldBeIdle) {
  EXPECT_TRUE(request_of(bounded(4, 4 * 8192, 48, 8192)).halves_tail);
  EXPECT_FALSE(request_of(dense(4, 1024, 48)).halves_tail);
  EXPECT_FALSE(request_of(dense(4, 8192, 64)).halves_tail);
  EXPECT_FALSE(request_of(packed(4, 4 * 8192, 48)).halves_tail);
}

TEST(CudaCut, LinearAttentionHasItsOwnTimes) {
  const auto linear = [](DeltaRuleProblem p) {
    p.rule = SLUICE_RULE_LINEAR_ATTENTION;
    p.beta = {};
    p.history = SLUICE_HISTORY_FORGET;  // it forgets nothing
    return p;
  };
  const CutRequest whole = request_of(linear(dense(24, 6144, 20)));
  EXPECT_EQ(whole.rule, CutRule::kWhole);
  EXPECT_EQ(whole.columns, 128);
  // A GPU that runs no clusters.
  const CutRequest narrow = choose_cut(linear(packed(1, 1024, 16)), h200({}), {});
  EXPECT_EQ(narrow.rule, CutRule::kWhole);
  EXPECT_EQ(narrow.columns, 64);
  const CutRequest cut = choose_cut(linear(dense(1, 65536, 16)), h200({}), {});
  EXPECT_EQ(cut.rule, CutRule::kEqual);
  EXPECT_EQ(cut.count, 8);  // 128 items for 132 multiprocessors
  EXPECT_TRUE(cut.scalar_factors);
  EXPECT_FALSE(cut.may_forget);
  EXPECT_EQ(request_of(linear(packed(2, 65536, 4))).rule, CutRule::kModel);
  DeltaRuleProblem odd = linear(dense(1, 65536, 16));
  odd.V = 192;
  EXPECT_EQ(request_of(odd).columns, 64);
  EXPECT_EQ(request_of(odd).transition_columns, 64);
  EXPECT_EQ(request_of(dense(1, 65536, 16)).columns, 128);  // remembered by rule
}

TEST(CudaCut, SegmentsOfLinearAttentionAreClusters) {
  const auto linear = [](DeltaRuleProblem p) {
    p.rule = SLUICE_RULE_LINEAR_ATTENTION;
    p.beta = {};
    return p;
  };
  for (const int64_t T : {2048, 4096, 8192}) {
    const DeltaRuleProblem p = linear(dense(1, T, 16));
    const CutRequest request = request_of(p);
    EXPECT_EQ(request.rule, CutRule::kCluster) << T;
    EXPECT_EQ(request.cluster_ctas, 6) << T;  // 17 clusters at once, but 15 of 8
    EXPECT_EQ(request.columns, 128);
    EXPECT_EQ(cut_workspace(p, request), 0u);
    EXPECT_EQ(request_of(linear(packed(1, T, 16))).rule, CutRule::kCluster);
  }
  EXPECT_EQ(request_of(linear(dense(1, 8192, 15))).cluster_ctas, 8);
  EXPECT_EQ(request_of(linear(dense(1, 2048, 18))).cluster_ctas, 4);
  EXPECT_EQ(request_of(linear(packed(1, 1024, 16))).rule, CutRule::kCluster);
  EXPECT_EQ(request_of(linear(packed(1, 512, 16))).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(linear(dense(1, 131072, 16))).rule, CutRule::kEqual);
  EXPECT_EQ(request_of(linear(dense(24, 6144, 20))).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(linear(packed(3, 8192, 16))).rule == CutRule::kCluster, false);
  DeltaRuleProblem odd = linear(dense(1, 8192, 8));
  odd.V = 192;
  EXPECT_NE(request_of(odd).rule, CutRule::kCluster);
  odd.V = 256;
  EXPECT_EQ(request_of(odd).rule, CutRule::kCluster);
}

TEST(CudaCut, TheEnvironmentMayAskForClusters) {
  CutOverride asked;
  ASSERT_TRUE(parse_cut("cluster2", nullptr, &asked).ok());
  DeltaRuleProblem p = dense(1, 200, 4);
  EXPECT_NE(request_of(p, asked).rule, CutRule::kCluster);  // it is no linear attention
  p.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kCluster);
  EXPECT_EQ(request_of(p, asked).cluster_ctas, 2);
  EXPECT_NE(request_of(dense(1, 0, 4), asked).rule, CutRule::kCluster);
  p.split = SLUICE_SPLIT_NEVER;
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kWhole);
  ASSERT_TRUE(parse_cut("cluster8", nullptr, &asked).ok());
  p.split = SLUICE_SPLIT_AUTO;
  EXPECT_EQ(request_of(p, asked).cluster_ctas, 8);
  EXPECT_FALSE(parse_cut("cluster3", nullptr, &asked).ok());
}

TEST(CudaCut, ShortSequencesOfLinearAttentionSumUpWhatIsBeforeThem) {
  const auto linear = [](DeltaRuleProblem p) {
    p.rule = SLUICE_RULE_LINEAR_ATTENTION;
    p.beta = {};
    return p;
  };
  for (const int64_t T : {512, 800, 1024}) {
    const CutRequest request = request_of(linear(dense(1, T, 16)));
    EXPECT_EQ(request.rule, CutRule::kPrefix) << T;
    EXPECT_EQ(request.prefix_blocks, 1) << T;
  }
  EXPECT_NE(request_of(linear(dense(8, 1024, 16))).rule, CutRule::kPrefix);
}

TEST(CudaCut, TheEnvironmentMayAskForPrefixes) {
  CutOverride asked;
  ASSERT_TRUE(parse_cut("prefix2", nullptr, &asked).ok());
  DeltaRuleProblem p = dense(1, 2000, 4);
  EXPECT_NE(request_of(p, asked).rule, CutRule::kPrefix);  // it is no linear attention
  p.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kPrefix);
  EXPECT_EQ(request_of(p, asked).prefix_blocks, 2);
  EXPECT_EQ(cut_workspace(p, request_of(p, asked)), 0u);
  const auto refused = [&](auto change) {
    DeltaRuleProblem other = p;
    change(other);
    return request_of(other, asked).rule != CutRule::kPrefix;
  };
  const core::Tensor given = p.beta;
  EXPECT_TRUE(refused([](auto& of) { of.V = 192; }));
  EXPECT_TRUE(refused([](auto& of) { of.rows.T = 8193; }));
  EXPECT_TRUE(refused([&](auto& of) { of.rows.cu_seqlens = given; }));
  EXPECT_TRUE(refused([&](auto& of) { of.state.initial = given; }));
  EXPECT_TRUE(refused([&](auto& of) { of.state.write_slots = given; }));
  EXPECT_TRUE(refused([&](auto& of) { of.checkpoints = given; }));
  EXPECT_FALSE(refused([&](auto& of) { of.state.final = given; }));
  EXPECT_FALSE(parse_cut("prefix3", nullptr, &asked).ok());
}

TEST(CudaCut, TheCallerComesBeforeTheEnvironment) {
  DeltaRuleProblem p = packed(2, 32768, 8);
  CutOverride asked;
  ASSERT_TRUE(parse_cut("never", nullptr, &asked).ok());
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(p, asked).columns, 128);
  ASSERT_TRUE(parse_cut("columns", "", &asked).ok());
  EXPECT_EQ(request_of(p, asked).columns, 64);
  ASSERT_TRUE(parse_cut("7", "auto", &asked).ok());
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kCount);
  EXPECT_EQ(request_of(p, asked).count, 7);
  EXPECT_EQ(request_of(p, asked).most_boundaries, 2 * 6);
  p.split = SLUICE_SPLIT_SEGMENTS;
  p.split_value = 3;
  EXPECT_EQ(request_of(p, asked).count, 3);
  p.split = SLUICE_SPLIT_NEVER;
  EXPECT_EQ(request_of(p, asked).rule, CutRule::kWhole);
}

TEST(CudaCut, EvenSegmentsCoverASequenceOnce) {
  CutRequest request;
  request.rule = CutRule::kEqual;
  for (const int32_t shortest : {1, 4}) {
    for (const int32_t value : {2, 3, 16}) {
      request.count = value;
      request.shortest = shortest;
      for (uint32_t chunks = 0; chunks < 70; ++chunks) {
        const int32_t count = device::equal_count(request, chunks);
        int32_t next = 0;
        for (int32_t at = 0; at < value; ++at) {
          const auto segment = device::equal_segment(request, request.lead, 5, chunks, at);
          ASSERT_EQ(segment.seq, 5);
          ASSERT_EQ(segment.chunks >= 0, at < count);
          if (at >= count) continue;
          ASSERT_EQ(segment.first, next);
          ASSERT_TRUE(count == 1 || segment.chunks >= shortest);
          ASSERT_EQ(segment.before, at == 0 ? -1 : 5 * (value - 1) + at - 1);
          ASSERT_EQ(segment.after, at + 1 == count ? -1 : 5 * (value - 1) + at);
          next += segment.chunks;
        }
        ASSERT_EQ(next, static_cast<int32_t>(chunks));
      }
    }
  }
}

TEST(CudaCut, LengthsKnownToBeEqualNeedNoPlanner) {
  const CutRequest cut = request_of(bounded(2, 65536, 8, 32768));
  EXPECT_EQ(cut.rule, CutRule::kEqual);
  EXPECT_EQ(cut.most_boundaries, 2 * (cut.count - 1));
  const DeltaRuleProblem whole = bounded(8, 32768, 64, 4096);
  EXPECT_EQ(request_of(whole).rule, CutRule::kWhole);
  EXPECT_TRUE(request_of(whole).in_order);
  EXPECT_EQ(cut_workspace(whole, request_of(whole)), 0u);
  EXPECT_FALSE(request_of(packed(8, 32768, 64)).in_order);
  EXPECT_EQ(request_of(bounded(4, 32768, 16, 8192)).columns, 64) << "no chain that finds nothing";
}

TEST(CudaCut, ALongestSequenceSaysWhatACutGains) {
  EXPECT_EQ(request_of(bounded(2, 32768, 16, 28672)).rule, CutRule::kModel);
  EXPECT_FALSE(request_of(bounded(2, 32768, 16, 28672)).may_narrow);
  EXPECT_EQ(request_of(bounded(16, 32768, 16, 3000)).rule, CutRule::kWhole);
  EXPECT_EQ(request_of(bounded(2, 32768, 16, 0)).rule, request_of(packed(2, 32768, 16)).rule);
}

TEST(CudaCut, UnknownLengthsKeepBothWidthsOpen) {
  EXPECT_TRUE(request_of(packed(4, 32768, 16)).may_narrow);
  EXPECT_FALSE(request_of(packed(1, 32768, 16)).may_narrow) << "its length is known";
  EXPECT_FALSE(request_of(packed(2, 65536, 64)).may_narrow) << "64 columns would not help";
}

TEST(CudaCut, HeadsRememberWhereEarlyStartsWouldCostMore) {
  const auto forgetful = [](DeltaRuleProblem p) {
    p.history = SLUICE_HISTORY_FORGET;
    return request_of(p).may_forget;
  };
  EXPECT_FALSE(forgetful(packed(1, 8192, 8)));
  EXPECT_TRUE(forgetful(packed(1, 32768, 16)));
}

/// Each answer of the model is kept until something else is asked.
TEST(CudaCut, AnswersDoNotDependOnWhatWasAskedBefore) {
  std::vector<DeltaRuleProblem> problems;
  for (const int64_t T : {512, 8192, 65536}) {
    problems.insert(problems.end(), {dense(1, T, 16), dense(1, T, 8), packed(1, T, 16),
                                     packed(4, T, 16), bounded(4, T, 16, T / 2)});
  }
  for (size_t i = problems.size(); i-- > 0;) {
    problems.push_back(problems[i]);
    problems.back().rule = SLUICE_RULE_LINEAR_ATTENTION;
    problems.push_back(problems[i]);
    problems.back().history = SLUICE_HISTORY_FORGET;
    problems.push_back(problems[i]);
    problems.back().K = 64;
  }
  const auto bytes = [](const CutRequest& cut) {
    return std::array{static_cast<int32_t>(cut.rule),
                      cut.count,
                      cut.most_boundaries,
                      cut.columns | cut.lead << 16,
                      cut.transition_columns,
                      int32_t{cut.may_forget},
                      int32_t{cut.may_narrow}};
  };
  for (const DeltaRuleProblem& before : problems) {
    for (const DeltaRuleProblem& p : problems) {
      const auto fresh = bytes((request_of(dense(1, 1, 1)), request_of(p)));
      EXPECT_EQ(bytes((request_of(before), request_of(p))), fresh);
    }
  }
}

TEST(CudaCut, LengthDependsOnHeadsAlone) {
  DeltaRuleProblem p = packed(1, 1 << 20, 8);
  p.split = SLUICE_SPLIT_LENGTH;
  const int32_t alone = request_of(p).length;
  for (const int64_t N : {2, 50, 1000}) {
    p.rows.N = N;
    EXPECT_EQ(request_of(p).length, alone);
    EXPECT_EQ(request_of(p).columns, 128);
  }
  p.split_value = 640;
  EXPECT_EQ(request_of(p).length, 10);
}

TEST(CudaCut, HistoryIsDroppedOnlyWhereItIsBounded) {
  DeltaRuleProblem p = packed(1, 32768, 16);
  EXPECT_FALSE(request_of(p).may_forget);
  p.qk_norm = SLUICE_QK_NORM_L2;
  EXPECT_FALSE(request_of(p).may_forget) << "beta values have no bound";
  p.beta_space = SLUICE_BETA_LOGIT;
  EXPECT_TRUE(request_of(p).may_forget);
  CutOverride strict;
  ASSERT_TRUE(parse_cut(nullptr, "strict", &strict).ok());
  EXPECT_FALSE(request_of(p, strict).may_forget);
  p.history = SLUICE_HISTORY_STRICT;
  EXPECT_FALSE(request_of(p).may_forget);
  p = packed(1, 32768, 16);
  p.history = SLUICE_HISTORY_FORGET;
  EXPECT_TRUE(request_of(p).may_forget);
}

TEST(CudaCut, UnknownWordsAreRefused) {
  CutOverride asked;
  for (const char* text : {"yes", "1", "0", "-3", "4097", "2x", "99999999999999999999"}) {
    const Status status = parse_cut(text, nullptr, &asked);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_EQ(
        std::string(status.message),
        std::string("cuda: SLUICE_CUDA_SPLIT = ") + text +
            ", expected auto, never, columns, length, cluster2, cluster4, cluster6, cluster8, "
            "prefix1, prefix2, prefix4 or 2 to 4096 segments");
  }
  const Status status = parse_cut(nullptr, "none", &asked);
  EXPECT_EQ(std::string(status.message),
            "cuda: SLUICE_CUDA_HISTORY = none, expected auto or strict");
}

TEST(CudaCut, TheWorkspaceHoldsTheTablesOneAfterTheOther) {
  for (const int64_t boundaries : {0, 1, 17, 300}) {
    const auto at = device::segment_workspace(5, 8, 64, 256, boundaries);
    const size_t pairs = static_cast<size_t>(boundaries) * 8;
    EXPECT_GE(at.segments, sizeof(device::SegmentHeader));
    EXPECT_GE(at.left - at.segments,
              (5 + static_cast<size_t>(boundaries)) * sizeof(device::Segment));
    EXPECT_GE(at.transitions - at.horizon, pairs * 4);
    EXPECT_GE(at.added - at.transitions, pairs * 5 * sizeof(device::Transition));
    EXPECT_GE(at.factor - at.added, pairs * 64 * 256 * 4);
    EXPECT_GE(at.end - at.factor, pairs * 64 * 256 * 4);
    EXPECT_EQ(at.added % 256, 0u);
    EXPECT_EQ(at.factor % 256, 0u);
  }
  EXPECT_EQ(cut_workspace(dense(8, 8192, 64), request_of(dense(8, 8192, 64))), 0u);
  EXPECT_GT(cut_workspace(packed(8, 8192, 64), request_of(packed(8, 8192, 64))), 0u);
}

}  // namespace
}  // namespace sluice::cuda
