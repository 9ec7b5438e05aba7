// Measures recurrent_step and chunk_forward with key-wise gates [B,T,HV,K] (GLA, KDA) against the
// float64 recurrence: token counts, packs, sizes, dtypes, gates that reset or never decay single
// channels; and what they must agree with: scalar gates, calls of one token, one another.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check/tensors.hpp"
#include "parity/delta_call.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Configs = std::vector<DeltaConfig>;

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}

class KeyGates : public ::testing::TestWithParam<DeltaConfig> {};

TEST_P(KeyGates, MatchesRecurrence) {
  const DeltaConfig& c = GetParam();
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  EXPECT_EQ(truth.damage, "");
  for (const auto implementation : implementations_under_test()) {
    const DeltaResult found = run_delta(c, implementation);
    const Verdict verdict = judge_delta(c, found, truth);
    EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
  }
}

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, KeyGates, ::testing::ValuesIn(configs), config_name)

/// Both rules of both operators with every change.
template <class Change>
void for_operators(Configs* configs, const std::string& name, Change change) {
  for (const auto op : {SLUICE_OP_RECURRENT_STEP, SLUICE_OP_CHUNK_FORWARD}) {
    for (const auto rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
      const bool step = op == SLUICE_OP_RECURRENT_STEP, kda = rule == SLUICE_RULE_GATED_DELTA;
      DeltaConfig c{.name = named(step ? "step_" : "chunk_", kda ? "kda_" : "gla_", name)};
      c.op = op, c.rule = rule, c.key_gates = true, c.seed = configs->size() + 1;
      c.gates = GateProfile::kFlashQla;
      if (!step) c.T = 70;
      change(c);
      configs->push_back(c);
    }
  }
}

Configs lengths() {
  Configs configs;
  for (const int64_t T : {0, 1, 2, 5, 15, 16}) {
    for_operators(&configs, named("T", T), [&](DeltaConfig& c) { c.T = T, c.K = 64, c.V = 48; });
  }
  for (const int64_t T : {17, 63, 64, 65, 129, 300}) {
    for_operators(&configs, named("T", T), [&](DeltaConfig& c) {
      c.T = c.op == SLUICE_OP_CHUNK_FORWARD ? T : T % 16;
      c.layout = SLUICE_STATE_VK;
      if (c.op == SLUICE_OP_CHUNK_FORWARD) c.checkpoint_every = 64;
    });
  }
  for_operators(&configs, "pack", [](DeltaConfig& c) {
    c.packed = true, c.lengths = {1, 0, 7, 16, 3}, c.rows_past_end = 2;
    if (c.op == SLUICE_OP_CHUNK_FORWARD) c.lengths = {65, 0, 1, 128, 40};
  });
  return configs;
}
SLUICE_CONFIGS(Lengths, lengths());

Configs sizes() {
  struct Sizes {
    int64_t H, HV, K, V;
  };
  Configs configs;
  for (const auto [H, HV, K, V] : {Sizes{1, 1, 128, 128},
                                   {2, 6, 60, 100},
                                   {1, 4, 1, 7},
                                   {2, 2, 127, 33},
                                   {1, 2, 256, 256},
                                   {2, 4, 33, 1}}) {
    for_operators(&configs, named("H", H, "_HV", HV, "_K", K, "_V", V), [&](DeltaConfig& c) {
      c.H = H, c.HV = HV, c.K = K, c.V = V, c.layout = K == 60 ? SLUICE_STATE_VK : SLUICE_STATE_KV;
      c.head_map = HV == 6 ? SLUICE_HEAD_MAP_CYCLIC : SLUICE_HEAD_MAP_BLOCK;
      c.T = c.op == SLUICE_OP_CHUNK_FORWARD ? 40 : 2;
    });
  }
  return configs;
}
SLUICE_CONFIGS(Sizes, sizes());

Configs values() {
  const std::pair<const char*, GateProfile> kProfiles[] = {
      {"zero", GateProfile::kZero},
      {"slow", GateProfile::kSlow},
      {"strong", GateProfile::kStrong},
      {"resets", GateProfile::kResets},
      {"infinite", GateProfile::kMinusInfinity}};
  Configs configs;
  for (const auto& [name, profile] : kProfiles) {
    for_operators(&configs, name, [&](DeltaConfig& c) {
      c.gates = profile, c.packed = true, c.lengths = {16, 16, 16};
      if (c.op == SLUICE_OP_CHUNK_FORWARD) c.lengths = {150, 16};
    });
  }
  for_operators(&configs, "linear", [](DeltaConfig& c) { c.gate_space = SLUICE_GATE_LINEAR; });
  for (const bool parameters : {true, false}) {
    for (const auto& [name, bound] : {std::pair{"raw", 0.0},
                                      {"bounded", -5.0},
                                      {"bounded_far", -1000.0},
                                      {"bounded_near", -0.01}}) {
      for_operators(&configs, named(name, parameters ? "" : "_alone"), [&](DeltaConfig& c) {
        c.gate_space = bound < 0 ? SLUICE_GATE_RAW_BOUNDED : SLUICE_GATE_RAW;
        c.gate_lower_bound = bound, c.has_gate_parameters = parameters;
        c.HV = 2, c.K = 40, c.packed = true, c.lengths = {16, 5};
        if (c.op == SLUICE_OP_CHUNK_FORWARD) c.lengths = {150, 16};
      });
    }
  }
  for_operators(&configs, "raw_infinite", [](DeltaConfig& c) {
    c.gate_space = SLUICE_GATE_RAW, c.gates = GateProfile::kMinusInfinity, c.per_head = kBF16;
  });
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype state : {kF32, kBF16, kF16}) {
      for_operators(&configs, named(dtype_name(io), "_", dtype_name(state)), [&](DeltaConfig& c) {
        c.io = c.o = io, c.gate = state, c.initial = c.final = state, c.K = 40;
        c.qk_norm = SLUICE_QK_NORM_L2, c.in_place = true;
      });
    }
  }
  return configs;
}
SLUICE_CONFIGS(Values, values());

/// Single tokens of models, of heads that a GPU has a warp, a CTA, a few and many a multiprocessor
/// for: each is a kernel of its own.
Configs models() {
  Configs configs;
  struct Types {
    sluice_dtype io, state;
    std::vector<int64_t> batches;
  };
  // In float32 many heads are no kernel of their own.
  const Types all[] = {
      {kBF16, kF32, {2, 12, 24}}, {kBF16, kBF16, {2, 12, 24, 101}}, {kF16, kF16, {2}}};
  for (const auto& [io, state, batches] : all) {
    for (const int64_t B : batches) {
      DeltaConfig c{.name = named(16 * B, "_heads_", dtype_name(io), "_", dtype_name(state))};
      c.seed = configs.size() + 1, c.key_gates = true, c.gates = GateProfile::kFlashQla;
      c.B = B, c.T = 1, c.H = 8, c.HV = 16, c.K = c.V = 128;
      c.io = c.o = io, c.initial = c.final = state, c.qk_norm = SLUICE_QK_NORM_L2;
      c.gate_space = B == 2 ? SLUICE_GATE_LOG : SLUICE_GATE_RAW;
      c.slots = Slots::kSeparate, c.padded = {1}, c.fresh = {0};
      configs.push_back(c);
    }
  }
  return configs;
}
SLUICE_CONFIGS(Models, models());

/// The same bits in everything that a call writes.
void expect_same_bits(const DeltaResult& a, const DeltaResult& b) {
  ASSERT_EQ(a.code, SLUICE_OK) << a.message;
  ASSERT_EQ(b.code, SLUICE_OK) << b.message;
  EXPECT_EQ(a.o.values, b.o.values);
  EXPECT_EQ(a.final.values, b.final.values);
}

/// kZero: a gate whose channels are all equal whatever their number.
TEST(KeyGatesAgree, WithoutDecayTheyAreNoGate) {
  for (const auto op : {SLUICE_OP_RECURRENT_STEP, SLUICE_OP_CHUNK_FORWARD}) {
    DeltaConfig c{.name = "zero", .op = op, .T = 9, .K = 24, .V = 40};
    c.gates = GateProfile::kZero;
    const DeltaResult scalar = run_delta(c, SLUICE_IMPL_REFERENCE);
    c.key_gates = true;
    expect_same_bits(run_delta(c, SLUICE_IMPL_REFERENCE), scalar);
    for (const auto implementation : implementations_under_test()) {
      const DeltaResult found = run_delta(c, implementation);
      const Verdict verdict = judge_delta(c, found, scalar);
      EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
    }
  }
}

/// A long row under slow gates: 1000 roundings of a decay would be 3e-5 in the state if they had
/// one sign.
TEST(KeyGatesAgree, SlowGatesKeepTheirPrecision) {
  DeltaConfig c{.name = "slow", .op = SLUICE_OP_CHUNK_FORWARD, .B = 1, .T = 1500, .K = 16, .V = 16};
  c.key_gates = true, c.gates = GateProfile::kSlow, c.rule = SLUICE_RULE_LINEAR_ATTENTION;
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  for (const auto implementation : implementations_under_test()) {
    const DeltaResult found = run_delta(c, implementation);
    const Verdict verdict = judge_delta(c, found, truth);
    EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
  }
}

}  // namespace
}  // namespace sluice::check
