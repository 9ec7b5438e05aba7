// Runs the passes of a split on the CPU: planner, horizons, transition pass, join, main pass, on
// cases whose sequences are cut in every way, and judges them against the recurrence. Also: heads
// that forget start early from zero and only they do, and malformed offsets stay inside.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "emulated_backend.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using cuda::device::CutRequest, cuda::device::CutRule;

GdnCase cut_in(const std::string& name, const std::vector<int64_t>& lengths, int32_t segments) {
  GdnCase c;
  c.name = name;
  c.lengths = lengths;
  c.T = 3;  // rows that belong to nobody
  for (const int64_t n : lengths) c.T += n;
  c.HV = 2;
  c.K = c.V = 128;
  c.io = kBF16;
  c.split = SLUICE_SPLIT_SEGMENTS;
  c.split_value = segments;
  return c;
}

constexpr auto kLinear = SLUICE_RULE_LINEAR_ATTENTION;

std::vector<GdnCase> cases() {
  std::vector<GdnCase> all;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& lengths,
                       int32_t segments, auto change) {
    GdnCase c = cut_in(name, lengths, segments);
    change(c);
    all.push_back(c);
  };
  add("two", {200}, 2, [](GdnCase&) {});
  add("four", {256}, 4, [](GdnCase&) {});
  add("five_of_unlike", {330, 0, 70, 1, 200}, 5, [](GdnCase& c) { c.HV = 1; });
  add("zero_gates", {300}, 4, [](GdnCase& c) { c.gates = GateProfile::kZero; });
  add("no_gates", {200}, 3, [](GdnCase& c) { c.gates = GateProfile::kNone; });
  add("correlated_fp16", {260}, 3, [](GdnCase& c) {
    c.io = kF16;
    c.keys = KeyProfile::kCos75;
  });
  add("columns_of_v64", {200}, 3, [](GdnCase& c) {
    c.V = 64;
    c.HV = 1;
  });
  add("k64", {200}, 3, [](GdnCase& c) { c.K = c.V = 64; });
  add("k64_v128", {200}, 3, [](GdnCase& c) { c.K = 64; });
  add("v256", {200}, 3, [](GdnCase& c) {
    c.V = 256;
    c.HV = 1;
  });
  add("dense", {}, 3, [](GdnCase& c) {
    c.B = 2;
    c.T = 300;
    c.HV = 1;
  });
  add("dense_too_short_for_all", {}, 5, [](GdnCase& c) {
    c.B = 2;
    c.T = 200;
    c.HV = 1;
  });
  add("forgetful", {450}, 3, [](GdnCase& c) {
    c.gates = GateProfile::kMixed;
    c.HV = 4;
    c.history = SLUICE_HISTORY_FORGET;
  });
  add("forgetful_raw", {300, 200}, 4, [](GdnCase& c) {
    c.options.gate_space = SLUICE_GATE_RAW;
    c.options.beta_space = SLUICE_BETA_LOGIT;
    c.gates = GateProfile::kModelLike;
    c.options.qk_norm = SLUICE_QK_NORM_L2;
  });
  add("loud", {450}, 3, [](GdnCase& c) {
    c.gates = GateProfile::kStrong;
    c.initial = StateProfile::kLoud;
    c.history = SLUICE_HISTORY_FORGET;
  });
  add("minus_infinity", {260}, 4, [](GdnCase& c) {
    c.gates = GateProfile::kMinusInfinity;
    c.history = SLUICE_HISTORY_FORGET;
  });
  add("states", {270, 140, 200}, 3, [](GdnCase& c) {
    c.state_layout = SLUICE_STATE_VK;
    c.slots = true;
    c.padded = {1};
    c.no_initial = {2};
    c.checkpoint_every = 64;
    c.state_dtype = kBF16;
    c.options.qk_norm = SLUICE_QK_NORM_L2;
  });
  add("in_place", {200, 130}, 2, [](GdnCase& c) { c.slots = c.in_place = true; });
  add("groups", {200}, 3, [](GdnCase& c) {
    c.H = 2;
    c.HV = 4;
    c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
  });
  add("linear", {450, 0, 64, 1, 130}, 4, [](GdnCase& c) {
    c.options.rule = kLinear;
    c.history = SLUICE_HISTORY_FORGET;  // it does not
  });
  add("linear_states", {270, 140, 200}, 3, [](GdnCase& c) {
    c.options.rule = kLinear;
    c.state_layout = SLUICE_STATE_VK;
    c.slots = true;
    c.padded = {1};
    c.no_initial = {2};
    c.checkpoint_every = 64;
    c.state_dtype = kBF16;
    c.K = 64;
  });
  add("linear_in_place", {300, 130}, 3, [](GdnCase& c) {
    c.options.rule = kLinear;
    c.slots = c.in_place = true;
    c.V = 64;
    c.io = kF16;
  });
  add("linear_many_boundaries", {}, 12, [](GdnCase& c) {
    c.options.rule = kLinear;
    c.T = 800;
    c.HV = 1;
    c.gates = GateProfile::kResets;
  });
  add("batch", {}, 3, [](GdnCase& c) {
    c.B = 2;
    c.T = 190;
    c.HV = 1;
  });
  add("by_length", {400, 100}, 0, [](GdnCase& c) {
    c.split = SLUICE_SPLIT_LENGTH;
    c.split_value = 128;
    c.HV = 1;
  });
  add("by_model", {5000}, 0, [](GdnCase& c) {
    c.split = SLUICE_SPLIT_AUTO;
    c.HV = 1;
  });
  add("known_to_be_equal", {200, 200}, 3, [](GdnCase& c) {
    c.T = 400;
    c.max_tokens = 200;
  });
  add("said_to_be_equal", {330, 70}, 3, [](GdnCase& c) {
    c.T = 400;
    c.max_tokens = 200;
    c.HV = 1;
  });
  add("long_lead", {700}, 4, [](GdnCase& c) { c.HV = 1; });
  add("lead_in_place", {500}, 3, [](GdnCase& c) {
    c.slots = c.in_place = true;
    c.checkpoint_every = 64;
  });
  add("columns", {140}, 0, [](GdnCase& c) { c.split = SLUICE_SPLIT_COLUMNS; });
  return all;
}

/// The request that a case leads to.
CutRequest request_of(const GdnCase& c) {
  core::DeltaRuleProblem p;
  p.HV = c.HV;
  p.K = c.K;
  p.V = c.V;
  p.rows.T = c.T;
  p.rows.N = c.sequences();
  p.rows.longest = c.max_tokens;
  p.split = c.split;
  p.split_value = c.split_value;
  p.history = c.history;
  p.qk_norm = c.options.qk_norm;
  p.beta_space = c.options.beta_space;
  int64_t present = 0;
  if (!c.lengths.empty()) p.rows.cu_seqlens.data = &present;
  p.rule = c.options.rule;
  if (c.options.rule == SLUICE_RULE_GATED_DELTA) p.beta.data = &present;
  return cuda::choose_cut(
      p, {0, cuda::kHopperCapability, cuda::emulated_multiprocessors, cuda::emulated_clusters},
      cuda::emulated_split);
}

class EmulatedSplit : public ::testing::TestWithParam<GdnCase> {
 protected:
  void SetUp() override { cuda::emulated_multiprocessors = 132; }
  void TearDown() override { cuda::emulated_multiprocessors = 4; }
};

TEST_P(EmulatedSplit, MatchesRecurrence) {
  const GdnCase& c = GetParam();
  if (c.split != SLUICE_SPLIT_COLUMNS) {
    EXPECT_NE(request_of(c).rule, CutRule::kWhole);
    if (c.max_tokens > 0) {
      EXPECT_EQ(request_of(c).rule, CutRule::kEqual);
    }
  }
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  cuda::emulation_seed = 77;
  const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
  ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
  const Verdict verdict = judge_run(c, inputs, outputs, truth);
  EXPECT_TRUE(verdict.pass) << outputs.kernel << "\n" << verdict.line;
}

/// First segments of other lengths, as items of the main pass ahead of the transition pass.
TEST_P(EmulatedSplit, MatchesRecurrenceWhereFirstSegmentsLead) {
  const GdnCase& c = GetParam();
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  cuda::emulation_seed = 78;
  cuda::emulated_lead = 7;
  const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
  cuda::emulated_lead = 0;
  ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
  const Verdict verdict = judge_run(c, inputs, outputs, truth);
  EXPECT_TRUE(verdict.pass) << outputs.kernel << "\n" << verdict.line;
}

GdnOutputs run_cut(GdnCase c, const GdnInputs& inputs, sluice_history history) {
  c.history = history;
  return run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
}

/// Elements of a head's outputs or states, [.., heads, row].
std::vector<double> of_head(const Array& array, int64_t heads, int64_t head, int64_t row) {
  std::vector<double> found;
  for (int64_t at = head * row; at < array.size(); at += heads * row) {
    const auto first = array.values.begin() + static_cast<std::ptrdiff_t>(at);
    found.insert(found.end(), first, first + static_cast<std::ptrdiff_t>(row));
  }
  return found;
}

bool any_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
}

/// A NaN in the initial state is gone where a head has forgotten it, and stays where history
/// counts.
TEST(EmulatedHistory, OnlyForgetfulHeadsDropIt) {
  GdnCase c = cut_in("history", {384}, 3);
  c.T = 384;
  c.HV = 4;
  c.gates = GateProfile::kMixed;  // heads 0 and 1 remember
  GdnInputs inputs = make_inputs(c);
  for (double& x : inputs.initial.values) x = std::nan("");
  const GdnOutputs strict = run_cut(c, inputs, SLUICE_HISTORY_STRICT),
                   forget = run_cut(c, inputs, SLUICE_HISTORY_FORGET);
  ASSERT_EQ(forget.code, SLUICE_OK) << forget.message;
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_TRUE(any_nan(of_head(strict.final_state, 4, head, 128 * 128))) << head;
  }
  EXPECT_TRUE(any_nan(of_head(forget.final_state, 4, 0, 128 * 128)));
  EXPECT_TRUE(any_nan(of_head(forget.final_state, 4, 1, 128 * 128)));
  EXPECT_FALSE(any_nan(of_head(forget.final_state, 4, 3, 128 * 128)));
}

/// Chunks that only bring the state of a later segment up are no checkpoints: those of the first
/// segment have what the initial state left.
TEST(EmulatedHistory, ChunksBeforeASegmentAreNoCheckpoints) {
  GdnCase c = cut_in("checkpoints", {512}, 2);
  c.T = 512, c.HV = 1;
  c.checkpoint_every = 64;
  GdnInputs inputs = make_inputs(c);
  std::fill(inputs.gate.values.begin(), inputs.gate.values.end(), -0.125);
  std::fill(inputs.k.values.begin(), inputs.k.values.end(), 0.0);
  std::fill(inputs.initial.values.begin(), inputs.initial.values.end(), 1e30);
  const GdnOutputs forget = run_cut(c, inputs, SLUICE_HISTORY_FORGET);
  ASSERT_EQ(forget.code, SLUICE_OK) << forget.message;
  for (int chunk = 1; chunk <= 4; ++chunk) {
    const double left = 1e30 * std::exp(-8.0 * chunk);
    EXPECT_NEAR(forget.checkpoints(0, chunk - 1, 0, 0, 0), left, 1e-2 * left) << chunk;
  }
}

/// NaN in one head's values reaches no other head, and no bit of theirs.
TEST(EmulatedContainment, AHeadsNaNStaysThereWhenCut) {
  GdnCase c = cut_in("containment", {260}, 4);
  c.T = 260;
  GdnInputs inputs = make_inputs(c);
  const GdnOutputs clean = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
  for (int64_t t = 10; t < 20; ++t) {
    inputs.v.values[static_cast<size_t>(t * c.HV * c.V)] = std::nan("");
  }
  const GdnOutputs spoilt = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
  ASSERT_EQ(spoilt.code, SLUICE_OK) << spoilt.message;
  EXPECT_TRUE(any_nan(of_head(spoilt.o, 2, 0, 128)));
  EXPECT_EQ(of_head(spoilt.o, 2, 1, 128), of_head(clean.o, 2, 1, 128));
  EXPECT_EQ(of_head(spoilt.final_state, 2, 1, 128 * 128),
            of_head(clean.final_state, 2, 1, 128 * 128));
}

/// Whole heads in 64 columns a CTA are the same numbers as in 128.
TEST(EmulatedColumns, GiveTheSameBits) {
  GdnCase c = cut_in("columns", {190, 64}, 0);
  c.HV = 1;
  const GdnInputs inputs = make_inputs(c);
  const auto run_as = [&](sluice_split split) {
    c.split = split;
    return run_cut(c, inputs, SLUICE_HISTORY_STRICT);
  };
  const GdnOutputs wide = run_as(SLUICE_SPLIT_NEVER), narrow = run_as(SLUICE_SPLIT_COLUMNS);
  EXPECT_EQ(narrow.kernel, wide.kernel + ".columns");
  EXPECT_EQ(wide.final_state.values, narrow.final_state.values);
  for (size_t i = 0; i < static_cast<size_t>(254 * c.V); ++i) {
    ASSERT_EQ(wide.o.values[i], narrow.o.values[i]) << i;
  }
}

/// Nor does it matter that only the last round's are.
TEST(EmulatedColumns, OfTheLastRoundAloneGiveTheSameBits) {
  GdnCase c = cut_in("halves", {130, 64, 70}, 0);
  c.HV = 1;
  c.split = SLUICE_SPLIT_NEVER;
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs whole = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
  cuda::emulated_halves = true;
  const GdnOutputs halved = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
  cuda::emulated_halves = false;
  ASSERT_EQ(halved.code, SLUICE_OK) << halved.message;
  EXPECT_EQ(whole.final_state.values, halved.final_state.values);
  for (size_t i = 0; i < static_cast<size_t>(264 * c.V); ++i) {
    ASSERT_EQ(whole.o.values[i], halved.o.values[i]) << i;
  }
}

/// However many columns a CTA of the join carries, it adds in the same order.
TEST(EmulatedJoin, ItsWidthChangesNoBit) {
  for (const int64_t K : {64, 128}) {
    GdnCase c = cut_in("join", {260}, 4);
    c.HV = 1;
    c.K = K;
    const GdnInputs inputs = make_inputs(c);
    const GdnOutputs narrow = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
    ASSERT_EQ(narrow.code, SLUICE_OK) << narrow.message;
    for (const int columns : {16, 32}) {
      cuda::emulated_join_columns = columns;
      const GdnOutputs wide = run_cut(c, inputs, SLUICE_HISTORY_STRICT);
      cuda::emulated_join_columns = 8;
      EXPECT_EQ(narrow.final_state.values, wide.final_state.values) << K << " " << columns;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedSplit, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
