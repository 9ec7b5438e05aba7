// Measures chunk_backward of sequences cut into segments against the float64 reference.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parity/backward_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// Whether a kernel that cuts says so in its name, and no other.
void expect_named(const BackwardConfig& c, const BackwardResult& found, bool cut) {
  if (!found.kernel.starts_with("cuda.chunk_backward.sm_90")) return;
  EXPECT_EQ(found.kernel.ends_with(".segments"), cut) << c.name << " " << found.kernel;
}

std::vector<BackwardConfig> segments(int64_t size) {
  std::vector<BackwardConfig> configs;
  for (const sluice_dtype io : {kBF16, kF16}) {
    const auto add = [&](const std::string& suffix, sluice_split split, int32_t value,
                         auto change) {
      const uint64_t seed = 100 * configs.size() + 1;
      BackwardConfig& c = configs.emplace_back();
      c.name = named(dtype_name(io), "_", suffix), c.seed = seed;
      c.K = c.V = size;
      // What is summed over few tokens is no mean over roundings.
      c.io = c.d_o = io, c.gradient = kF32;
      c.split = split, c.split_value = value;
      c.gates = GateProfile::kSlow, c.qk_norm = SLUICE_QK_NORM_L2, c.T = 200;
      change(&c);
    };
    for (const int32_t count : {2, 3, 4, 9}) {
      add(named("in", count), SLUICE_SPLIT_SEGMENTS, count, [&](BackwardConfig* c) {
        c->B = count == 3 ? 2 : 1, c->layout = count == 4 ? SLUICE_STATE_VK : SLUICE_STATE_KV;
        c->gradient = io;
      });
    }
    add("of_one_chunk", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) { c->B = 2; });
    add("of_two_chunks", SLUICE_SPLIT_LENGTH, 128, [](BackwardConfig* c) {
      c->T = 330, c->H = 1, c->HV = 3, c->initial = c->d_final = false;
    });
    // Long enough for matrices to lie where states will.
    add("of_four_chunks", SLUICE_SPLIT_LENGTH, 256,
        [](BackwardConfig* c) { c->T = 760, c->HV = 1, c->gates = GateProfile::kZero; });
    add("of_all_chunks", SLUICE_SPLIT_LENGTH, 256, [](BackwardConfig*) {});
    add("of_a_pack", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) {
      c->lengths = {1, 130, 0, 64, 63, 200}, c->T = 461, c->HV = 1, c->gates = GateProfile::kMixed;
    });
    add("in3_of_a_pack", SLUICE_SPLIT_SEGMENTS, 3, [](BackwardConfig* c) {
      c->lengths = {130, 0, 64, 200}, c->T = 397, c->gate_space = SLUICE_GATE_RAW;
      c->layout = SLUICE_STATE_VK;
    });
    add("cos75", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) { c->keys = KeyProfile::kCos75; });
    add("misaligned", SLUICE_SPLIT_SEGMENTS, 3,
        [](BackwardConfig* c) { c->wild = true, c->H = c->HV = 4; });
    add("in_windows", SLUICE_SPLIT_LENGTH, 256,
        [](BackwardConfig* c) { c->wild = true, c->T = 900, c->H = c->HV = 1; });
    add("resets", SLUICE_SPLIT_LENGTH, 64,
        [](BackwardConfig* c) { c->gates = GateProfile::kMinusInfinity; });
    add("tiny", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) { c->size = 0x1p-20; });
    add("huge", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) { c->size = 0x1p12; });
    add("only_initial", SLUICE_SPLIT_LENGTH, 64, [](BackwardConfig* c) {
      for (int i = 0; i < 7; ++i) c->outputs[i] = false;
    });
  }
  return configs;
}

/// One test for all of a size and a type, so that as many calls are not as many processes.
struct Kind {
  int64_t size;
  sluice_dtype io;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.size << "_" << dtype_name(kind.io);
}
class ChunkBackwardSegments : public ::testing::TestWithParam<Kind> {};

TEST_P(ChunkBackwardSegments, MatchReference) {
  for (const BackwardConfig& c : segments(GetParam().size)) {
    if (!same_dtype(c.io, GetParam().io)) continue;
    const BackwardResult truth = run_backward(c, SLUICE_IMPL_REFERENCE, kF32);
    const BackwardResult found = run_backward(c, implementations_under_test().front());
    const Verdict verdict = judge_backward(c, found, truth);
    EXPECT_TRUE(verdict.pass) << c.name << " " << found.kernel << "\n" << verdict.line;
    const bool whole = c.name.ends_with("of_all_chunks") || c.name.ends_with("only_initial");
    expect_named(c, found, !whole);
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, ChunkBackwardSegments,
                         ::testing::Values(Kind{128, kBF16}, Kind{128, kF16}, Kind{64, kBF16},
                                           Kind{64, kF16}),
                         ::testing::PrintToStringParamName());

/// Simple GLA has no segments, and no bit of it depends on the option.
TEST(ChunkBackwardSegmentsOfSimpleGla, AreNone) {
  BackwardConfig c;
  c.rule = SLUICE_RULE_LINEAR_ATTENTION, c.K = c.V = 64, c.io = c.d_o = kBF16, c.T = 130;
  const auto implementation = implementations_under_test().front();
  const BackwardResult whole = run_backward(c, implementation);
  c.split = SLUICE_SPLIT_LENGTH, c.split_value = 64;
  const BackwardResult found = run_backward(c, implementation);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  expect_named(c, found, false);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(whole.gradients[i].second, found.gradients[i].second))
        << whole.gradients[i].first;
  }
}

/// Few heads and a long sequence, which a GPU cuts unasked.
TEST(ChunkBackwardSegmentsOfLongSequences, MadeUnaskedOnAllMultiprocessors) {
  const auto implementation = implementations_under_test().front();
  BackwardConfig c;
  c.T = implementation == SLUICE_IMPL_CUDA ? 4000 : 192, c.H = 2, c.HV = 4, c.K = c.V = 128;
  c.io = c.d_o = kBF16, c.qk_norm = SLUICE_QK_NORM_L2, c.gates = GateProfile::kSlow;
  const BackwardResult truth = run_backward(c, SLUICE_IMPL_REFERENCE, kF32);
  const BackwardResult first = run_backward(c, implementation);
  const BackwardResult second = run_backward(c, implementation, {}, 0x00);
  const Verdict verdict = judge_backward(c, first, truth);
  EXPECT_TRUE(verdict.pass) << first.kernel << "\n" << verdict.line;
  expect_named(c, first, true);
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(first.gradients[i].second, second.gradients[i].second))
        << first.gradients[i].first;
  }
}

}  // namespace
}  // namespace sluice::check
