// Measures chunk_forward on inputs that broke other implementations: extreme gates, correlated
// keys, extreme write strengths, loud histories. Each is compared with the float64 recurrence.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A case, and log gates that replace those of its profile: one token in `period` has `gate`.
struct HardCase {
  GdnCase gdn;
  int64_t period = 0;
  double gate = 0.0;
  /// Identical keys at beta 2: every step multiplies by 1 - 2 k.k along one k, so an error of one
  /// float32 ulp in k.k grows to about 2 T 2^-23 = 4.8e-5 at T = 200 (arithmetic, not isolated by
  /// an experiment). Measured 5.6e-5; these states are held to 1e-4, where others are held to 1e-5.
  bool drifts = false;
};

void PrintTo(const HardCase& c, std::ostream* out) { *out << c.gdn.name; }
std::string case_name(const ::testing::TestParamInfo<HardCase>& info) {
  return info.param.gdn.name;
}

/// Both outputs by the wider cap of correlated keys.
Verdict judge_drift(const GdnOutputs& outputs, const GdnOutputs& truth) {
  const Tolerance wide = cap(kF32, Quantity::kOutput, Conditioning::kCorrelated);
  const Verdict o = judge("o", compare_tokens(view_of(outputs.o), view_of(truth.o)), wide);
  const Verdict state =
      judge("final_state", compare_states(view_of(outputs.final_state), view_of(truth.final_state)),
            wide);
  return {o.pass && state.pass, o.line + "\n" + state.line};
}

class HardInputs : public ::testing::TestWithParam<HardCase> {};

TEST_P(HardInputs, MatchRecurrence) {
  const HardCase& hard = GetParam();
  const GdnCase& c = hard.gdn;
  GdnInputs inputs = make_inputs(c);
  for (int64_t t = 0; hard.period > 0 && t < c.T; ++t) {
    if (t % hard.period != hard.period - 1) continue;
    for (int64_t h = 0; h < c.HV; ++h) inputs.gate(0, t, h) = hard.gate;
  }
  const GdnOutputs truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  for (const sluice_implementation implementation : implementations_under_test()) {
    const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = implementation});
    ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
    EXPECT_TRUE(outputs.memory_intact);
    const Verdict verdict =
        hard.drifts ? judge_drift(outputs, truth) : judge_run(c, inputs, outputs, truth);
    EXPECT_TRUE(verdict.pass) << outputs.kernel << "\n" << verdict.line;
  }
}

TEST(HardInputsNan, OfAGateReachesItsHeadFromThereOn) {
  constexpr int64_t kToken = 37;
  const GdnCase c{.name = "nan_gate", .T = 100, .H = 1, .HV = 2, .K = 32, .V = 24};
  GdnInputs inputs = make_inputs(c);
  inputs.gate(0, kToken, 1) = std::numeric_limits<double>::quiet_NaN();
  for (const sluice_implementation implementation : implementations_under_test()) {
    const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = implementation});
    ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
    for (int64_t t = kToken; t < c.T; ++t) EXPECT_TRUE(std::isnan(outputs.o(0, t, 1, 0))) << t;
    for (int64_t t = 0; t < c.T; ++t) EXPECT_FALSE(std::isnan(outputs.o(0, t, 0, 0))) << t;
  }
}

/// Gates: none at all over a long history, resets of every size and period.
std::vector<HardCase> gates() {
  std::vector<HardCase> cases;
  GdnCase base{.name = "", .T = 300, .H = 1, .HV = 2, .K = 64, .V = 48};
  const auto add = [&](const std::string& name, GateProfile profile, int64_t period, double gate) {
    GdnCase c = base;
    c.name = name, c.gates = profile;
    cases.push_back({c, period, gate});
  };
  base.T = 700;
  add("zero", GateProfile::kZero, 0, 0);
  base.T = 300;
  add("all_minus_20", GateProfile::kZero, 1, -20);
  add("all_minus_1000", GateProfile::kZero, 1, -1000);
  add("all_minus_infinity", GateProfile::kZero, 1, -kInfinity);
  for (const int64_t period : {2, 16, 37, 64, 200}) {
    const int64_t n = period;
    add(named("minus_80_every_", n), GateProfile::kZero, period, -80);
    add(named("minus_1000_every_", n), GateProfile::kSlow, period, -1000);
    add(named("minus_infinity_every_", n), GateProfile::kSlow, period, -kInfinity);
  }
  add("resets", GateProfile::kResets, 0, 0);
  add("minus_infinity_profile", GateProfile::kMinusInfinity, 0, 0);
  add("half_zeros", GateProfile::kHalfZeros, 0, 0);
  add("strong", GateProfile::kStrong, 0, 0);
  add("mixed", GateProfile::kMixed, 0, 0);
  add("model_like", GateProfile::kModelLike, 0, 0);
  base.io = kBF16;
  add("bfloat16_resets", GateProfile::kResets, 0, 0);
  add("bfloat16_minus_infinity", GateProfile::kMinusInfinity, 0, 0);
  base.options.rule = SLUICE_RULE_LINEAR_ATTENTION, base.io = kF32;
  add("linear_attention_minus_infinity", GateProfile::kMinusInfinity, 0, 0);
  add("linear_attention_all_minus_1000", GateProfile::kZero, 1, -1000);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Gates, HardInputs, ::testing::ValuesIn(gates()), case_name);

/// Keys and write strengths that make the triangular system ill-conditioned, or empty.
std::vector<HardCase> keys() {
  struct Profile {
    const char* name;
    KeyProfile keys;
  };
  struct Strength {
    const char* name;
    BetaProfile betas;
  };
  std::vector<HardCase> cases;
  for (const Profile& profile : {Profile{"silu", KeyProfile::kSiluLike},
                                 {"cos75", KeyProfile::kCos75},
                                 {"cos90", KeyProfile::kCos90},
                                 {"identical", KeyProfile::kIdentical},
                                 {"zero", KeyProfile::kZero},
                                 {"antiparallel", KeyProfile::kAntiParallel}}) {
    for (const Strength& strength : {Strength{"beta0", BetaProfile::kZero},
                                     {"beta1", BetaProfile::kOne},
                                     {"beta2", BetaProfile::kTwo},
                                     {"sigmoid", BetaProfile::kSigmoid}}) {
      for (const GateProfile gate : {GateProfile::kZero, GateProfile::kSlow}) {
        GdnCase c{.name = named(profile.name, "_", strength.name,
                                gate == GateProfile::kZero ? "_no_decay" : "_slow")};
        c.T = 200, c.H = 1, c.HV = 2, c.K = 64, c.V = 48;
        c.keys = profile.keys, c.betas = strength.betas, c.gates = gate;
        const bool one_direction =
            profile.keys == KeyProfile::kIdentical || profile.keys == KeyProfile::kAntiParallel;
        cases.push_back({c, 0, 0.0, one_direction && strength.betas == BetaProfile::kTwo});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Keys, HardInputs, ::testing::ValuesIn(keys()), case_name);

/// Histories much louder than the present.
std::vector<HardCase> loud() {
  std::vector<HardCase> cases;
  for (const GateProfile gate :
       {GateProfile::kZero, GateProfile::kSlow, GateProfile::kFlashQla, GateProfile::kStrong}) {
    GdnCase c{.name = named("early_values_gates", static_cast<int>(gate))};
    c.T = 400, c.H = 1, c.HV = 2, c.K = 64, c.V = 48;
    c.values = ValueProfile::kLoudEarly, c.gates = gate;
    cases.push_back({c});
    c.name = named("state_gates", static_cast<int>(gate));
    c.values = ValueProfile::kRandom, c.initial = StateProfile::kLoud;
    cases.push_back({c});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Loud, HardInputs, ::testing::ValuesIn(loud()), case_name);

/// Many tiny sequences, many heads, and a long one: counts rather than values.
std::vector<HardCase> counts() {
  std::vector<HardCase> cases;
  GdnCase tiny{.name = "4096_sequences_of_0_to_3", .H = 1, .HV = 2, .K = 8, .V = 8};
  tiny.T = 0;
  for (int64_t n = 0; n < 4096; ++n) {
    tiny.lengths.push_back((n * 7 + n / 5) % 4);
    tiny.T += tiny.lengths.back();
  }
  for (const sluice_dtype index : {kI32, kI64}) {
    GdnCase c = tiny;
    c.name += same_dtype(index, kI32) ? "_int32" : "_int64";
    c.index_dtype = index;
    c.slots = same_dtype(index, kI32);
    cases.push_back({c});
  }
  GdnCase wide{.name = "65600_heads_of_sequences", .T = 1, .H = 1, .HV = 16, .K = 4, .V = 4};
  wide.B = 4100;
  cases.push_back({wide});
  GdnCase longest{.name = "8192_tokens", .T = 8192, .H = 1, .HV = 1, .K = 32, .V = 32};
  longest.gates = GateProfile::kZero;
  cases.push_back({longest});
  GdnCase pack{.name = "pack_9999_and_55531", .H = 1, .HV = 1, .K = 16, .V = 16};
  pack.lengths = {9999, 55531};
  pack.T = 65530;
  cases.push_back({pack});
  GdnCase million{.name = "2_to_the_20_tokens", .T = 1 << 20, .H = 1, .HV = 1, .K = 4, .V = 4};
  cases.push_back({million});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(CountsSlow, HardInputs, ::testing::ValuesIn(counts()), case_name);

}  // namespace
}  // namespace sluice::check
