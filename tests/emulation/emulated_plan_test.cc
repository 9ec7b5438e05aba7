// Runs the planner's own source on the CPU, on up to 1000 sequences of all kinds and on offsets
// that make no sense, and holds its tables against what they promise. Also: which heads start
// early.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "check/generate.hpp"
#include "cuda/device/segments.hpp"
#include "emulated_backend.hpp"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;
using device::Segment, device::CutRequest, device::CutRule;

sluice_tensor host_view(void* data, sluice_dtype dtype, std::initializer_list<int64_t> shape) {
  sluice_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<uint16_t>(shape.size());
  int axis = 0;
  for (const int64_t n : shape) t.shape[axis++] = n;
  for (int64_t stride = 1; axis-- > 0; stride *= t.shape[axis]) t.stride[axis] = stride;
  return t;
}

/// Packed sequences with gates, for one call of the planner.
struct Batch {
  std::vector<int64_t> offsets;
  std::vector<float> gates;
  DeltaRuleProblem problem;

  Batch(std::vector<int64_t> given, int64_t T, int64_t HV, float gate = -0.1f)
      : offsets(std::move(given)), gates(static_cast<size_t>(T * HV), gate) {
    const auto N = static_cast<int64_t>(offsets.size()) - 1;
    problem.rows = {1, T, N, host_view(offsets.data(), {0, 64}, {N + 1}), T};
    problem.H = problem.HV = HV;
    problem.r = 1;
    problem.K = problem.V = 128;
    problem.gate = host_view(gates.data(), {2, 32}, {1, T, HV, 1});
  }

  static Batch of_lengths(const std::vector<int64_t>& lengths, int64_t HV) {
    std::vector<int64_t> offsets{0};
    for (const int64_t n : lengths) offsets.push_back(offsets.back() + n);
    const int64_t T = offsets.back();
    return Batch(std::move(offsets), T, HV);
  }

  uint32_t chunks(size_t n) const {
    return device::chunks_between(offsets[n], offsets[n + 1], problem.rows.T);
  }
};

CutRequest request_for(CutRule rule, int32_t value, int32_t most) {
  CutRequest request;
  request.rule = rule;
  (rule == CutRule::kLength ? request.length : request.count) = value;
  request.multiprocessors = 132;
  request.most_boundaries = most;
  request.columns = request.transition_columns = 128;
  return request;
}

/// Segments cover every sequence once, in order; boundaries join them; longest come first.
void expect_consistent(const Batch& batch, const EmulatedPlan& plan, const CutRequest& request) {
  ASSERT_EQ(plan.trouble, "");
  ASSERT_LE(plan.header.boundaries, static_cast<uint32_t>(request.most_boundaries));
  std::map<int32_t, std::vector<Segment>> by_sequence;
  int bucket = device::kBuckets;
  std::map<int32_t, int> bucket_of;
  for (const Segment& s : plan.segments) {
    by_sequence[s.seq].push_back(s);
    const int own = device::length_bucket(static_cast<uint32_t>(s.chunks));
    bucket_of.emplace(s.seq, own);
    EXPECT_LE(own, bucket + 1);  // segments of a sequence differ by a chunk, and so by a bucket
    bucket = std::min(bucket, bucket_of[s.seq]);
  }
  ASSERT_EQ(by_sequence.size(), batch.offsets.size() - 1);
  std::set<int32_t> boundaries;
  for (const auto& [seq, segments] : by_sequence) {
    int32_t next = 0, before = -1;
    for (const Segment& s : segments) {
      EXPECT_EQ(s.first, next);
      EXPECT_EQ(s.before, before);
      next += s.chunks;
      before = s.after;
      if (s.after < 0) continue;
      EXPECT_GT(s.chunks, 0);
      EXPECT_TRUE(boundaries.insert(s.after).second);
      EXPECT_TRUE(s.before < 0 || s.after == s.before + 1);
      const Segment& left = plan.left[static_cast<size_t>(s.after)];
      EXPECT_TRUE(left.seq == seq && left.first == s.first && left.after == s.after);
    }
    EXPECT_EQ(before, -1);
    EXPECT_EQ(static_cast<uint32_t>(next), batch.chunks(static_cast<size_t>(seq)));
  }
  EXPECT_EQ(boundaries.size(), plan.header.boundaries);
}

TEST(EmulatedPlan, CoversAnyBatchOnce) {
  check::Random random(11);
  for (const int64_t N : {1, 2, 3, 17, 200, 1000}) {
    for (const CutRule rule : {CutRule::kModel, CutRule::kCount, CutRule::kLength}) {
      std::vector<int64_t> lengths;
      for (int64_t n = 0; n < N; ++n) {
        lengths.push_back(
            static_cast<int64_t>(random.bits() % (random.bits() % 7 == 0 ? 900 : 90)));
      }
      lengths[random.bits() % lengths.size()] = 4000;
      const Batch batch = Batch::of_lengths(lengths, 2);
      const int32_t value = rule == CutRule::kModel ? 0 : 5;
      const CutRequest request = request_for(rule, value, rule == CutRule::kModel ? 60 : 4000);
      expect_consistent(batch, emulate_plan(batch.problem, request), request);
    }
  }
}

TEST(EmulatedPlan, OnlyTheLongSequenceIsCut) {
  std::vector<int64_t> lengths(40, 64);
  lengths[13] = 64 * 200;
  const Batch batch = Batch::of_lengths(lengths, 2);
  const CutRequest request = request_for(CutRule::kModel, 0, 190);
  const EmulatedPlan plan = emulate_plan(batch.problem, request);
  expect_consistent(batch, plan, request);
  EXPECT_GT(plan.header.boundaries, 3u);
  for (const Segment& s : plan.segments) EXPECT_TRUE(s.after < 0 || s.seq == 13);
  EXPECT_EQ(plan.segments[0].seq, 13);
}

TEST(EmulatedPlan, ItemsAreNarrowWhereNothingIsCutAndTheyAreFaster) {
  CutRequest request = request_for(CutRule::kModel, 0, 190);
  request.may_narrow = true;
  const auto header = [&](const std::vector<int64_t>& lengths, int64_t HV) {
    return emulate_plan(Batch::of_lengths(lengths, HV).problem, request).header;
  };
  EXPECT_EQ(header({8192, 8192, 8192, 8192}, 16).narrow, 1u);
  EXPECT_EQ(header({8192, 8192, 8192, 8192}, 16).boundaries, 0u);
  EXPECT_EQ(header({8192, 8192, 8192, 8192}, 30).narrow, 0u) << "two rounds";
  EXPECT_EQ(header({30000, 64, 64, 64}, 2).narrow, 0u);
  EXPECT_GT(header({30000, 64, 64, 64}, 2).boundaries, 0u);
  request.may_narrow = false;
  EXPECT_EQ(header({8192, 8192, 8192, 8192}, 16).narrow, 0u);
}

TEST(EmulatedPlan, NothingIsCutWhereAllAreBusy) {
  const Batch batch = Batch::of_lengths(std::vector<int64_t>(300, 640), 2);
  const EmulatedPlan plan = emulate_plan(batch.problem, request_for(CutRule::kModel, 0, 190));
  EXPECT_EQ(plan.header.boundaries, 0u);
  EXPECT_EQ(plan.header.segments, 300u);
}

TEST(EmulatedPlan, SegmentsByLengthIgnoreTheNeighbours) {
  const CutRequest request = request_for(CutRule::kLength, 6, 4000);
  const auto starts = [&](const std::vector<int64_t>& lengths, int32_t seq) {
    const EmulatedPlan plan = emulate_plan(Batch::of_lengths(lengths, 2).problem, request);
    std::vector<int32_t> found;
    for (const Segment& s : plan.segments) {
      if (s.seq == seq) found.push_back(s.first);
    }
    return found;
  };
  EXPECT_EQ(starts({3000}, 0), starts({64, 9000, 3000, 1}, 2));
}

/// Offsets that fall, overlap or lie outside: sequences are clamped, and where there is no room for
/// the boundaries nothing is cut.
TEST(EmulatedPlan, MalformedOffsetsStayInTheTables) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min(),
                    kHigh = std::numeric_limits<int64_t>::max();
  const int64_t T = 3000;
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, kHigh, 0, kHigh, 0, kHigh, 0, kHigh},
        {kLow, kHigh, kLow, 5},
        {2000, 1000, 3000, 0, 3000},
        {-7, 100, 90, 4000}}) {
    for (const CutRule rule : {CutRule::kModel, CutRule::kLength}) {
      const Batch batch(offsets, T, 2);
      const CutRequest request = request_for(rule, 4, 12);
      expect_consistent(batch, emulate_plan(batch.problem, request), request);
    }
  }
}

/// Horizons of a sequence of six chunks in three segments, by head.
std::vector<int32_t> horizons_with(void (*spoil)(Batch&), bool may_forget = true) {
  Batch batch({0, 384}, 384, 4, -0.2f);  // -12.8 a chunk: two chunks forget
  spoil(batch);
  CutRequest request = request_for(CutRule::kCount, 3, 2);
  request.may_forget = may_forget;
  return emulate_plan(batch.problem, request).horizon;
}

void set_gate(Batch& batch, int64_t token, int64_t head, float gate) {
  batch.gates[static_cast<size_t>(token * 4 + head)] = gate;
}

TEST(EmulatedHorizon, HeadsThatForgetStartEarly) {
  const auto nothing = [](Batch&) {};
  EXPECT_EQ(horizons_with(nothing), (std::vector<int32_t>{2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(horizons_with(nothing, false), std::vector<int32_t>(8, -1));
  const auto remembers = horizons_with([](Batch& batch) {
    for (int64_t t = 0; t < 384; ++t) set_gate(batch, t, 1, -0.001f);
    set_gate(batch, 127, 2, -30.0f);
  });
  EXPECT_EQ(remembers, (std::vector<int32_t>{2, -1, 1, 2, 2, -1, 2, 2}));
}

TEST(EmulatedHorizon, PositiveGatesAndNaNAreNeverForgotten) {
  const auto spoilt = horizons_with([](Batch& batch) {
    set_gate(batch, 100, 0, 1e-6f);
    set_gate(batch, 200, 3, std::numeric_limits<float>::quiet_NaN());
    set_gate(batch, 250, 2, -std::numeric_limits<float>::infinity());
  });
  EXPECT_EQ(spoilt, (std::vector<int32_t>{-1, 2, 2, 2, 2, 2, 1, -1}));
}

TEST(EmulatedHorizon, TheTransitionPassComputesWhatTheJoinNeeds) {
  Batch batch({0, 384}, 384, 4, -0.2f);
  for (int64_t t = 0; t < 384; ++t) set_gate(batch, t, 1, 0.0f);    // remembers all
  for (int64_t t = 128; t < 256; ++t) set_gate(batch, t, 3, 0.0f);  // and this one the middle
  CutRequest request = request_for(CutRule::kCount, 3, 2);
  request.may_forget = true;
  const EmulatedPlan plan = emulate_plan(batch.problem, request);
  std::set<std::vector<int32_t>> items;
  for (const auto& t : plan.transitions) items.insert({t.boundary, t.head, t.is_factor});
  EXPECT_EQ(items, (std::set<std::vector<int32_t>>{{0, 1, 0}, {1, 1, 0}, {1, 1, 1}, {1, 3, 0}}));
}

}  // namespace
}  // namespace sluice::cuda
