// Tests linear attention whose segments share one launch, on the CPU: as the CTAs of clusters, and
// each summing up all before it; judged against the recurrence.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "emulated_backend.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr auto kLinear = SLUICE_RULE_LINEAR_ATTENTION;

/// Linear attention whose segments are the CTAs of one cluster.
struct InCluster {
  GdnCase c;
  int32_t ctas;
};

std::vector<InCluster> cluster_cases() {
  std::vector<InCluster> all;
  const auto add = [&](const std::string& name, int64_t T, int32_t ctas, auto change) {
    GdnCase c;
    c.name = name;
    c.T = T;
    c.HV = 1;
    c.K = c.V = 128;
    c.io = kBF16;
    c.options.rule = kLinear;
    change(c);
    all.push_back({c, ctas});
  };
  add("kept_tiles", 250, 2, [](GdnCase&) {});
  add("tiles_read_twice", 450, 2, [](GdnCase&) {});
  add("four", 500, 4, [](GdnCase& c) { c.gates = GateProfile::kResets; });
  add("four_read_twice", 700, 4, [](GdnCase& c) { c.state_layout = SLUICE_STATE_VK; });
  add("fewer_chunks_than_ctas", 130, 8, [](GdnCase& c) { c.K = 64; });
  add("one_token", 1, 4, [](GdnCase& c) { c.gates = GateProfile::kNone; });
  add("eight_fp16", 1100, 8, [](GdnCase& c) {
    c.K = 64;
    c.io = kF16;
  });
  add("six", 900, 6, [](GdnCase& c) { c.slots = true; });
  add("six_k64", 900, 6, [](GdnCase& c) { c.K = 64; });
  add("batch_of_columns", 190, 2, [](GdnCase& c) {
    c.B = 2;
    c.HV = 2;
    c.H = 1;
    c.V = 256;
    c.K = 64;
  });
  add("pools", 320, 2, [](GdnCase& c) {
    c.B = 3;
    c.slots = true;
    c.padded = {1};
    c.no_initial = {2};
    c.checkpoint_every = 64;
    c.state_dtype = kBF16;
    c.K = 64;
  });
  add("in_place", 330, 4, [](GdnCase& c) { c.slots = c.in_place = true; });
  add("shorter_than_said", 400, 4, [](GdnCase& c) { c.lengths = {270}; });
  return all;
}

void PrintTo(const InCluster& of, std::ostream* out) { *out << of.c.name; }

/// Two schedules of a case, by the kernel whose name ends so.
void expect_recurrence(const GdnCase& c, const char* ending) {
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  for (const uint64_t seed : {5u, 6u}) {
    cuda::emulation_seed = seed;
    const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
    ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
    EXPECT_TRUE(outputs.kernel.ends_with(ending)) << outputs.kernel;
    const Verdict verdict = judge_run(c, inputs, outputs, truth);
    EXPECT_TRUE(verdict.pass) << verdict.line;
  }
}

class EmulatedCluster : public ::testing::TestWithParam<InCluster> {
 protected:
  void SetUp() override { cuda::emulated_split.cluster = GetParam().ctas; }
  void TearDown() override { cuda::emulated_split.cluster = 0; }
};

TEST_P(EmulatedCluster, MatchesRecurrence) { expect_recurrence(GetParam().c, ".clusters"); }

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedCluster, ::testing::ValuesIn(cluster_cases()),
                         [](const auto& test) { return test.param.c.name; });

/// Linear attention whose segments sum up all before them.
struct WithPrefix {
  GdnCase c;
  int32_t blocks;
};

std::vector<WithPrefix> prefix_cases() {
  std::vector<WithPrefix> all;
  const auto add = [&](const std::string& name, int64_t T, int32_t blocks, auto change) {
    GdnCase c;
    c.name = name;
    c.T = T;
    c.K = c.V = 128;
    c.io = kBF16;
    c.options.rule = kLinear;
    c.initial = StateProfile::kNone;
    change(c);
    all.push_back({c, blocks});
  };
  add("one_token", 1, 1, [](GdnCase& c) { c.gates = GateProfile::kNone; });
  add("one_block", 128, 4, [](GdnCase&) {});
  add("odd_chunks", 330, 1, [](GdnCase& c) { c.state_layout = SLUICE_STATE_VK; });
  add("resets", 520, 1, [](GdnCase& c) { c.gates = GateProfile::kResets; });
  add("minus_infinity", 500, 2, [](GdnCase& c) { c.gates = GateProfile::kMinusInfinity; });
  add("long_segments", 1100, 4, [](GdnCase& c) {
    c.K = 64;
    c.io = kF16;
  });
  add("more_tiles_than_stages", 900, 1, [](GdnCase& c) { c.K = 64; });
  add("batch_of_columns", 190, 1, [](GdnCase& c) {
    c.B = 2;
    c.HV = 2;
    c.V = 256;
    c.K = 64;
    c.state_dtype = kBF16;
  });
  return all;
}

void PrintTo(const WithPrefix& of, std::ostream* out) { *out << of.c.name; }

class EmulatedPrefix : public ::testing::TestWithParam<WithPrefix> {
 protected:
  void SetUp() override { cuda::emulated_split.prefix = GetParam().blocks; }
  void TearDown() override { cuda::emulated_split.prefix = 0; }
};

TEST_P(EmulatedPrefix, MatchesRecurrence) { expect_recurrence(GetParam().c, ".prefix"); }

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedPrefix, ::testing::ValuesIn(prefix_cases()),
                         [](const auto& test) { return test.param.c.name; });

}  // namespace
}  // namespace sluice::check
