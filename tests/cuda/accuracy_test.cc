// Measures the error of a CUDA prefill against the float64 recurrence, beside that of the
// yardstick: the chunk form with an exact inverse and the same operand roundings. Every length,
// gate profile and key profile; errors and their ratios are recorded as properties
// (--gtest_output=json:FILE).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "device_scene.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

template <class Profile>
struct Choice {
  const char* name;
  Profile profile;
};

constexpr Choice<GateProfile> kGates[] = {
    {"none", GateProfile::kNone},           {"zero", GateProfile::kZero},
    {"slow", GateProfile::kSlow},           {"flashqla", GateProfile::kFlashQla},
    {"strong", GateProfile::kStrong},       {"model", GateProfile::kModelLike},
    {"resets", GateProfile::kResets},       {"infinity", GateProfile::kMinusInfinity},
    {"halfzeros", GateProfile::kHalfZeros}, {"mixed", GateProfile::kMixed}};

constexpr Choice<KeyProfile> kKeys[] = {
    {"unit", KeyProfile::kRandomUnit},     {"silu", KeyProfile::kSiluLike},
    {"cos75", KeyProfile::kCos75},         {"cos90", KeyProfile::kCos90},
    {"identical", KeyProfile::kIdentical}, {"antiparallel", KeyProfile::kAntiParallel},
    {"zerokeys", KeyProfile::kZero}};

constexpr Choice<sluice_dtype> kTypes[] = {{"bf16", kBF16}, {"fp16", kF16}};

Conditioning conditioning_of(KeyProfile keys) {
  if (keys == KeyProfile::kIdentical || keys == KeyProfile::kAntiParallel) {
    return Conditioning::kDegenerate;
  }
  const bool correlated = keys == KeyProfile::kCos75 || keys == KeyProfile::kCos90;
  return correlated ? Conditioning::kCorrelated : Conditioning::kBenign;
}

/// The limits of one quantity: the yardstick's rules, with one allowance.
Tolerance limits_of(const GdnCase& c, const Comparison& yardstick, Quantity quantity) {
  const Conditioning keys = conditioning_of(c.keys);
  // The cap of correlated keys is that of cosine .75; above it the yardstick alone decides.
  const bool capped = c.keys != KeyProfile::kCos90;
  const Tolerance limit =
      from_yardstick(yardstick, capped ? cap(c.io, quantity, keys) : Tolerance{1, 1, 1}, c.io);
  // NUM the yardstick is exact where nothing rounds to 16 bits; the kernel computes in float32.
  const Tolerance float32 = cap(kF32, quantity, Conditioning::kBenign);
  return {std::max(limit.whole, float32.whole), std::max(limit.head, float32.head),
          std::max(limit.window, float32.window)};
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", value);
  return text;
}

/// Errors against the recurrence, the kernel's and the yardstick's.
struct Errors {
  Comparison o, yardstick_o, state, yardstick_state;
};

void measure(const GdnCase& c, Errors* errors) {
  const GdnInputs inputs = make_inputs(c);
  DeviceScene scene(c, inputs);
  ASSERT_EQ(scene.run(), "");
  const GdnOutputs found = scene.outputs(), truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  const YardstickOutputs yardstick = yardstick_of(c, inputs);
  const std::vector<int64_t> rows = c.cu_seqlens();
  errors->o = compare_tokens(view_of(found.o), view_of(truth.o), rows);
  errors->yardstick_o = compare_tokens(view_of(yardstick.o), view_of(truth.o), rows);
  errors->state = compare_states(view_of(found.final_state), view_of(truth.final_state));
  errors->yardstick_state =
      compare_states(view_of(yardstick.final_state), view_of(truth.final_state));
}

class CudaAccuracy : public ::testing::TestWithParam<GdnCase> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }

  /// The kernel's errors against the yardstick's, recorded and judged.
  void judge_beside(const char* name, const Comparison& found, const Comparison& yardstick,
                    Quantity quantity) {
    const GdnCase& c = GetParam();
    const std::string prefix = std::string(name) + "_";
    RecordProperty(prefix + "whole", scientific(found.relative_l2));
    RecordProperty(prefix + "head", scientific(found.worst_head.relative_l2));
    RecordProperty(prefix + "window", scientific(found.worst_window.relative_l2));
    RecordProperty(prefix + "yardstick_whole", scientific(yardstick.relative_l2));
    RecordProperty(prefix + "yardstick_head", scientific(yardstick.worst_head.relative_l2));
    RecordProperty(prefix + "yardstick_window", scientific(yardstick.worst_window.relative_l2));
    const Verdict verdict = judge(name, found, limits_of(c, yardstick, quantity));
    EXPECT_TRUE(verdict.pass) << verdict.line;
  }
};

class CudaAccuracyOverDraws : public ::testing::TestWithParam<GdnCase> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
};

TEST_P(CudaAccuracy, NearTheRecurrenceAndTheYardstick) {
  Errors errors;
  ASSERT_NO_FATAL_FAILURE(measure(GetParam(), &errors));
  judge_beside("o", errors.o, errors.yardstick_o, Quantity::kOutput);
  judge_beside("state", errors.state, errors.yardstick_state, Quantity::kState);
}

/// Every gate profile with every key profile.
std::vector<GdnCase> profiles() {
  std::vector<GdnCase> cases;
  for (const auto& type : kTypes) {
    for (const auto& gate : kGates) {
      for (const auto& key : kKeys) {
        GdnCase c = prefill_case(named(type.name, "_", gate.name, "_", key.name), {449, 64}, 2, 4);
        c.io = type.profile, c.gates = gate.profile, c.keys = key.profile;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

/// Correlated keys and slow gates with every write strength that does not diverge.
std::vector<GdnCase> correlated() {
  std::vector<GdnCase> cases;
  for (const auto& type : kTypes) {
    for (const auto& key : kKeys) {
      if (key.profile == KeyProfile::kZero || key.profile == KeyProfile::kRandomUnit) continue;
      for (const auto& beta : {Choice<BetaProfile>{"one", BetaProfile::kOne},
                               Choice<BetaProfile>{"absent", BetaProfile::kAbsent},
                               Choice<BetaProfile>{"sigmoid", BetaProfile::kSigmoid}}) {
        GdnCase c = prefill_case(named(type.name, "_", key.name, "_beta_", beta.name), {513}, 1, 2);
        c.io = type.profile, c.keys = key.profile, c.betas = beta.profile;
        // WHY no state: a random one hides what aligned keys do to the error.
        c.initial = StateProfile::kNone;
        c.gates = beta.profile == BetaProfile::kAbsent ? GateProfile::kZero : GateProfile::kSlow;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

/// Every length up to 200, and long ones, packed; normalised and raw inputs beside plain ones.
std::vector<GdnCase> lengths() {
  std::vector<GdnCase> cases;
  for (const auto& type : kTypes) {
    for (int64_t first = 1; first <= 4; ++first) {
      std::vector<int64_t> ladder;
      for (int64_t length = first; length <= 200; length += 4) ladder.push_back(length);
      GdnCase c = prefill_case(named(type.name, "_from_", first, "_by_4"), ladder, 1, 2);
      c.io = type.profile;
      c.gates = first % 2 == 0 ? GateProfile::kSlow : GateProfile::kStrong;
      if (first == 3) c.options.qk_norm = SLUICE_QK_NORM_L2;
      if (first == 4)
        c.options.gate_space = SLUICE_GATE_RAW, c.options.beta_space = SLUICE_BETA_LOGIT;
      cases.push_back(c);
    }
    for (const int64_t length : {1000, 4095, 4096, 4097}) {
      GdnCase c = prefill_case(named(type.name, "_long_", length), {length, 1000, 1}, 1, 1);
      c.io = type.profile, c.gates = GateProfile::kSlow;
      cases.push_back(c);
    }
  }
  return cases;
}

/// Key-wise gates: every profile with some keys, then lengths, groups and gate spaces.
std::vector<GdnCase> key_gates() {
  constexpr Choice<GateProfile> kProfiles[] = {
      {"zero", GateProfile::kZero},           {"slow", GateProfile::kSlow},
      {"even", GateProfile::kEvenSlow},       {"strong", GateProfile::kStrong},
      {"bounded", GateProfile::kBounded},     {"spread", GateProfile::kSpread},
      {"resets", GateProfile::kSingleResets}, {"infinity", GateProfile::kMinusInfinity},
      {"one", GateProfile::kOneStrong},       {"alternating", GateProfile::kAlternating}};
  std::vector<GdnCase> cases;
  for (const auto& type : kTypes) {
    const auto add = [&](const std::string& name, const std::vector<int64_t>& lengths,
                         auto change) {
      GdnCase c = prefill_case(named(type.name, "_", name), lengths, 2, 4);
      c.io = type.profile, c.key_gates = true, c.gates = GateProfile::kSpread;
      change(c);
      cases.push_back(c);
    };
    for (const auto& gate : kProfiles) {
      for (const auto& key : {kKeys[0], kKeys[2], kKeys[3]}) {
        add(named(gate.name, "_", key.name), {449, 64}, [&](GdnCase& c) {
          c.gates = gate.profile, c.keys = key.profile;
          if (key.profile == KeyProfile::kCos75) c.options.qk_norm = SLUICE_QK_NORM_L2;
        });
      }
    }
    for (int64_t first = 1; first <= 4; ++first) {
      std::vector<int64_t> ladder{0};
      for (int64_t length = first; length <= 200; length += 4) ladder.push_back(length);
      add(named("from_", first, "_by_4"), ladder, [&](GdnCase& c) {
        c.HV = 2, c.H = 1;
        if (first == 2) c.options.rule = SLUICE_RULE_LINEAR_ATTENTION;
        if (first == 3) c.options.qk_norm = SLUICE_QK_NORM_L2, c.gate_dtype = kBF16;
      });
    }
    for (const auto space : {SLUICE_GATE_RAW, SLUICE_GATE_RAW_BOUNDED, SLUICE_GATE_LINEAR}) {
      add(named("space_", space), {130, 447}, [&](GdnCase& c) {
        c.options.gate_space = space, c.gates = GateProfile::kBounded;
        if (space == SLUICE_GATE_RAW_BOUNDED) c.options.gate_lower_bound = -5;
        c.options.beta_space = SLUICE_BETA_LOGIT, c.options.qk_norm = SLUICE_QK_NORM_L2;
      });
    }
    for (const int64_t K : {64, 128}) {
      for (const int64_t V : {64, 128, 256}) {
        add(named("K", K, "_V", V), {100, 200}, [&](GdnCase& c) { c.K = K, c.V = V; });
        add(named("segments_K", K, "_V", V), {1000, 64}, [&](GdnCase& c) {
          c.K = K, c.V = V, c.split = SLUICE_SPLIT_SEGMENTS, c.split_value = 5;
          c.gates = V == 64 ? GateProfile::kBounded : GateProfile::kSpread;
          c.options.qk_norm = SLUICE_QK_NORM_L2;
          if (V != 256) c.options.beta_space = SLUICE_BETA_LOGIT;
          if (V == 256) c.options.rule = SLUICE_RULE_LINEAR_ATTENTION;
        });
      }
    }
  }
  return cases;
}

/// The cases whose worst head or window, of one draw of inputs, came out above 1.2 times the
/// yardstick's.
std::vector<GdnCase> close_ones() {
  std::vector<GdnCase> cases;
  for (const GdnCase& c : profiles()) {
    for (const char* name : {"fp16_resets_cos75", "fp16_resets_cos90", "fp16_resets_antiparallel",
                             "fp16_flashqla_cos90", "bf16_resets_identical"}) {
      if (c.name == name) cases.push_back(c);
    }
  }
  for (const GdnCase& c : correlated()) {
    if (c.name == "bf16_identical_beta_one") cases.push_back(c);
  }
  return cases;
}

/// Errors of a quantity summed over draws, the kernel's beside the yardstick's.
struct Beside {
  double found[3] = {}, yardstick[3] = {};

  void add(const Comparison& a, const Comparison& b) {
    const auto each = [](double(&sum)[3], const Comparison& c) {
      sum[0] += c.relative_l2;
      sum[1] += c.worst_head.relative_l2;
      sum[2] += c.worst_window.relative_l2;
    };
    each(found, a);
    each(yardstick, b);
  }
};

/// WHY a mean: of one draw the worst of a few heads or windows is the luck of its roundings, in the
/// yardstick as in the kernel.
TEST_P(CudaAccuracyOverDraws, MeanErrorIsWithinAQuarterOfTheYardsticks) {
  Beside o, state;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    GdnCase c = GetParam();
    c.seed = seed;
    Errors errors;
    ASSERT_NO_FATAL_FAILURE(measure(c, &errors));
    o.add(errors.o, errors.yardstick_o);
    state.add(errors.state, errors.yardstick_state);
  }
  const char* const scopes[] = {"whole", "head", "window"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(o.found[i], 1.25 * o.yardstick[i]) << "o, " << scopes[i];
    RecordProperty(std::string("o_") + scopes[i], scientific(o.found[i] / o.yardstick[i]));
    if (i == 2) continue;
    EXPECT_LE(state.found[i], 1.25 * state.yardstick[i]) << "state, " << scopes[i];
    RecordProperty(std::string("state_") + scopes[i],
                   scientific(state.found[i] / state.yardstick[i]));
  }
}

/// Two channels that decay by turns, with keys along their sum and beta = 2: each alone forgets all
/// within two tokens, yet the delta rule moves the state to the channel that decays next.
TEST(CudaKeyHorizon, ChannelsThatTakeTurnsAreRemembered) {
  SLUICE_SKIP_WITHOUT_GPU();
  GdnCase c = prefill_case("turns", {1024}, 1, 2);
  c.key_gates = true, c.io = kBF16, c.betas = BetaProfile::kTwo;
  c.split = SLUICE_SPLIT_SEGMENTS, c.split_value = 4, c.history = SLUICE_HISTORY_FORGET;
  GdnInputs inputs = make_inputs(c);
  for (int64_t t = 0; t < c.T; ++t) {
    for (int64_t i = 0; i < c.K; ++i) {
      inputs.k(0, t, 0, i) = i < 2 ? round_to(kBF16, std::sqrt(0.5)) : 0.0;
      inputs.q(0, t, 0, i) = i < 2 ? 0.5 : 0.0;
      for (int64_t h = 0; h < c.HV; ++h) inputs.gate(0, t, h, i) = i == t % 2 ? 0.0 : -20.0;
    }
  }
  std::vector<double> found[2];
  for (const auto history : {SLUICE_HISTORY_STRICT, SLUICE_HISTORY_FORGET}) {
    c.history = history;
    DeviceScene scene(c, inputs);
    ASSERT_EQ(scene.run(), "");
    found[history == SLUICE_HISTORY_FORGET] = scene.outputs().o.values;
  }
  EXPECT_EQ(found[0], found[1]);
}

std::string name_of(const ::testing::TestParamInfo<GdnCase>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(Close, CudaAccuracyOverDraws, ::testing::ValuesIn(close_ones()), name_of);
INSTANTIATE_TEST_SUITE_P(Profiles, CudaAccuracy, ::testing::ValuesIn(profiles()), name_of);
INSTANTIATE_TEST_SUITE_P(Correlated, CudaAccuracy, ::testing::ValuesIn(correlated()), name_of);
INSTANTIATE_TEST_SUITE_P(KeyGates, CudaAccuracy, ::testing::ValuesIn(key_gates()), name_of);
INSTANTIATE_TEST_SUITE_P(Lengths, CudaAccuracy, ::testing::ValuesIn(lengths()), name_of);

}  // namespace
}  // namespace sluice::check
