// Tests the case runner and the specification's C interface together: cases of every option run
// through sluice_chunk_forward on the reference's chunk form and must match its recurrence, and a
// yardstick evaluated on the same inputs must be as far from it as its roundings explain.
// SPDX-License-Identifier: Apache-2.0
#include "support/case_runner.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::check {
namespace {

GdnCase base(const std::string& name) {
  GdnCase c;
  c.name = name;
  c.T = 130, c.H = 2, c.HV = 4, c.K = 20, c.V = 12;
  return c;
}

std::vector<GdnCase> cases() {
  std::vector<GdnCase> all;
  const auto add = [&](const char* name, auto change) {
    GdnCase c = base(name);
    change(c);
    all.push_back(c);
  };
  add("plain", [](GdnCase&) {});
  add("batch_head_first", [](GdnCase& c) { c.B = 3, c.T = 70, c.tokens = Placement::kHeadFirst; });
  add("packed", [](GdnCase& c) { c.lengths = {0, 65, 1, 0, 40}, c.index_dtype = kI32; });
  add("no_states_no_gates_no_betas", [](GdnCase& c) {
    c.initial = StateProfile::kNone, c.gates = GateProfile::kNone, c.betas = BetaProfile::kAbsent;
  });
  add("raw_logit_negative_l2", [](GdnCase& c) {
    c.options.gate_space = SLUICE_GATE_RAW, c.options.beta_space = SLUICE_BETA_LOGIT;
    c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.options.qk_norm = SLUICE_QK_NORM_L2;
  });
  add("raw_resets",
      [](GdnCase& c) { c.options.gate_space = SLUICE_GATE_RAW, c.gates = GateProfile::kResets; });
  add("linear_infinite_cyclic", [](GdnCase& c) {
    c.options.gate_space = SLUICE_GATE_LINEAR, c.gates = GateProfile::kMinusInfinity;
    c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
  });
  add("simple_gla_scaled", [](GdnCase& c) {
    c.options.rule = SLUICE_RULE_LINEAR_ATTENTION, c.options.scale = 1.0,
    c.gates = GateProfile::kStrong;
  });
  add("pool_vk", [](GdnCase& c) {
    c.lengths = {64, 3, 0, 60}, c.slots = true, c.state_layout = SLUICE_STATE_VK;
    c.pool = Placement::kPaddedSlots, c.no_initial = {1}, c.in_place = true;
  });
  add("pool_padded", [](GdnCase& c) {
    c.B = 3, c.T = 20, c.slots = true, c.padded = {1}, c.tokens = Placement::kFusedRow;
  });
  add("checkpoints", [](GdnCase& c) { c.lengths = {128, 1}, c.checkpoint_every = 64; });
  add("bf16", [](GdnCase& c) { c.io = c.state_dtype = kBF16, c.T = 200; });
  add("fp16", [](GdnCase& c) { c.io = kF16, c.keys = KeyProfile::kCos75, c.T = 200; });
  add("bf16_identical_keys", [](GdnCase& c) {
    c.io = kBF16, c.keys = KeyProfile::kIdentical, c.betas = BetaProfile::kOne;
    c.initial = StateProfile::kNone, c.T = 200;
  });
  return all;
}

class CaseRunner : public ::testing::TestWithParam<GdnCase> {};

TEST_P(CaseRunner, ChunkFormMatchesTheRecurrence) {
  const GdnCase& c = GetParam();
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  EXPECT_EQ(truth.kernel, "reference.chunk_forward");
  const GdnOutputs found = run_chunk_forward(c, inputs, {SLUICE_IMPL_REFERENCE_CHUNKED});
  EXPECT_EQ(found.kernel, "reference-chunked.chunk_forward");
  const Verdict verdict = judge_run(c, inputs, found, truth);
  EXPECT_TRUE(verdict.pass) << verdict.line;
  EXPECT_TRUE(truth.memory_intact);
}

TEST_P(CaseRunner, JudgesAMistakeAsOne) {
  const GdnCase& c = GetParam();
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  GdnInputs wrong = inputs;
  for (double& v : wrong.v.values) v = round_to(c.io, 1.05 * v);
  const GdnOutputs found = run_chunk_forward(c, wrong, {SLUICE_IMPL_REFERENCE});
  EXPECT_FALSE(judge_run(c, inputs, found, truth).pass);
}

TEST_P(CaseRunner, YardstickIsTheTruthWithRoundings) {
  const GdnCase& c = GetParam();
  if (!c.padded.empty()) return;  // the yardstick knows no padding
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  const YardstickOutputs yardstick = yardstick_of(c, inputs);
  const Comparison o = compare_tokens(view_of(yardstick.o), view_of(truth.o), c.cu_seqlens());
  EXPECT_EQ(o.fault, "");
  const auto limit = [&](Quantity quantity) {
    const bool degenerate =
        c.keys == KeyProfile::kIdentical;  // no cap: only the order of magnitude
    return degenerate ? 0.1 : cap(c.io, quantity, Conditioning::kCorrelated).whole;
  };
  EXPECT_LE(o.relative_l2, limit(Quantity::kOutput));
  const Comparison state =
      compare_states(view_of(yardstick.final_state), view_of(truth.final_state));
  EXPECT_LE(state.relative_l2, limit(Quantity::kState));
}

INSTANTIATE_TEST_SUITE_P(Options, CaseRunner, ::testing::ValuesIn(cases()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(CaseRunnerSteps, AreThePrefill) {
  GdnCase c = base("steps");
  c.lengths = {1, 16, 0, 5}, c.slots = true, c.no_initial = {1};
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs steps = run_recurrent_step(c, inputs, {SLUICE_IMPL_REFERENCE});
  const Verdict verdict = judge_run(c, inputs, steps, truth_of(c, inputs));
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

TEST(CaseRunnerMemory, GuardsSeeAByteBesideTheElements) {
  for (const Placement placement :
       {Placement::kDense, Placement::kHeadFirst, Placement::kFusedRow, Placement::kPaddedSlots}) {
    TestTensor tensor(kBF16, make_normal({2, 3, 4, 5}, 1), placement);
    EXPECT_TRUE(tensor.guards_intact());
    const sluice_tensor& view = tensor.view();
    EXPECT_EQ(tensor.values().values, round_to(kBF16, make_normal({2, 3, 4, 5}, 1)).values);
    auto* const start = static_cast<unsigned char*>(view.data);
    start[-1] ^= 1;
    EXPECT_FALSE(tensor.guards_intact());
    start[-1] ^= 1;
    if (placement == Placement::kFusedRow || placement == Placement::kPaddedSlots) {
      const int dimension = placement == Placement::kFusedRow ? 1 : 0;
      start[view.stride[dimension] * 2 - 1] ^= 1;
      EXPECT_FALSE(tensor.guards_intact());
    }
  }
}

}  // namespace
}  // namespace sluice::check
