// Judges first segments that are computed in the transition pass: where they begin and end, and when
// the host chooses them.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "cuda/chunk_forward/cut.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::CutRequest, device::CutRule;

constexpr int kH200 = 132;  ///< its multiprocessors

/// B sequences of T tokens; only sizes matter.
DeltaRuleProblem dense(int64_t B, int64_t T, int64_t HV) {
  static int64_t present;
  DeltaRuleProblem p;
  p.rows = {B, T, B, {}, T};
  p.HV = HV;
  p.K = p.V = 128;
  p.beta.data = &present;
  return p;
}

CutRequest request_of(const DeltaRuleProblem& p) {
  return choose_cut(p, {0, kHopperCapability, kH200, {}}, {});
}

TEST(CudaLeadingSegments, AllCoverASequenceOnce) {
  CutRequest request;
  request.rule = CutRule::kEqual;
  request.shortest = device::kShortestSegment;
  for (const int lead : {1, 3, 6, 16}) {
    for (const int32_t value : {3, 5, 17}) {
      request.count = value;
      request.lead = static_cast<int8_t>(lead);
      for (uint32_t chunks = 0; chunks < 200; ++chunks) {
        const int32_t count = device::equal_count(request, chunks);
        int32_t next = 0, longest = 0, shortest = 200;
        for (int32_t at = 0; at < count; ++at) {
          const auto segment = device::equal_segment(request, request.lead, 0, chunks, at);
          ASSERT_EQ(segment.first, next);
          ASSERT_TRUE(count == 1 || segment.chunks > 0) << chunks << " in " << count;
          if (at > 0) longest = std::max(longest, segment.chunks);
          if (at > 0) shortest = std::min(shortest, segment.chunks);
          next += segment.chunks;
        }
        ASSERT_EQ(next, static_cast<int32_t>(chunks));
        ASSERT_TRUE(count == 1 || longest - shortest <= 1);
      }
    }
  }
}

/// Where the transition pass has two rounds, and heads remember. One round is as long as a first
/// segment, which would gain nothing.
TEST(CudaLeadingSegments, AreChosenWhereTheTransitionPassIsLong) {
  static int64_t present;
  for (const int64_t HV : {8, 16, 32}) {
    const CutRequest request = request_of(dense(1, 32768, HV));
    EXPECT_EQ(request.rule, CutRule::kEqual) << HV;
    EXPECT_GT(request.lead, 4) << HV;
    EXPECT_LE(request.count * HV, kH200 + HV) << "one round of the main pass";
  }
  EXPECT_EQ(request_of(dense(1, 8192, 8)).lead, 0);
  DeltaRuleProblem unknown = dense(2, 32768, 8);
  unknown.rows = {1, 65536, 2, {}, 65536};
  unknown.rows.cu_seqlens.data = &present;
  EXPECT_EQ(request_of(unknown).lead, 0) << "lengths are not known";
  EXPECT_EQ(request_of(dense(1, 32768, 96)).lead, 0);
  DeltaRuleProblem p = dense(1, 32768, 8);
  p.split = SLUICE_SPLIT_SEGMENTS;
  p.split_value = 17;
  EXPECT_EQ(request_of(p).lead, 0) << "the caller's way";
  p = dense(1, 32768, 8);
  p.key_gate.data = &present;
  EXPECT_EQ(request_of(p).lead, 0);
  p.key_gate = {};
  p.rule = SLUICE_RULE_LINEAR_ATTENTION;
  EXPECT_EQ(request_of(p).lead, 0);
}

TEST(CudaLeadingSegments, AreSlowerThan64ColumnsOfManyHeadsWithoutTheNorm) {
  for (const int64_t HV : {48, 64}) {
    DeltaRuleProblem p = dense(1, 32768, HV);
    EXPECT_EQ(request_of(p).rule, CutRule::kWhole) << HV;
    EXPECT_EQ(request_of(p).columns, 64) << HV;
    p.qk_norm = SLUICE_QK_NORM_L2;
    EXPECT_EQ(request_of(p).rule, CutRule::kEqual) << HV << " with the norm";
    EXPECT_EQ(request_of(p).columns, 128) << HV;
  }
}

}  // namespace
}  // namespace sluice::cuda
