// Runs segments with key-wise gates on the CPU where history may be dropped: what forgets does so
// unasked, and whatever some channel keeps is kept.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// Ten chunks of one head in segments of 4, 3 and 3.
GdnCase in_three(const std::string& name) {
  GdnCase c;
  c.name = name;
  c.lengths = {640}, c.T = 643;
  c.K = c.V = 128, c.io = kBF16, c.key_gates = true;
  c.split = SLUICE_SPLIT_SEGMENTS, c.split_value = 3;
  return c;
}

GdnOutputs run(GdnCase c, const GdnInputs& inputs, sluice_history history) {
  c.history = history;
  return run_chunk_forward(c, inputs, {.implementation = SLUICE_IMPL_CUDA});
}

bool any_nan(const Array& array) {
  const std::vector<double>& values = array.values;
  return std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
}

/// Bounded raw gates of channels, rows of unit length and strengths of at most one: nothing is asked
/// for, and what is forgotten is dropped.
TEST(EmulatedKeyHistory, BoundedKeyWiseGatesDropItByThemselves) {
  GdnCase c = in_three("bounded_keys");
  c.gates = GateProfile::kBounded;
  c.options.gate_space = SLUICE_GATE_RAW_BOUNDED, c.options.gate_lower_bound = -5;
  c.options.beta_space = SLUICE_BETA_LOGIT, c.options.qk_norm = SLUICE_QK_NORM_L2;
  GdnInputs inputs = make_inputs(c);
  for (double& x : inputs.initial.values) x = std::nan("");
  const GdnOutputs strict = run(c, inputs, SLUICE_HISTORY_STRICT),
                   automatic = run(c, inputs, SLUICE_HISTORY_AUTO);
  ASSERT_EQ(automatic.code, SLUICE_OK) << automatic.message;
  EXPECT_TRUE(any_nan(strict.final_state));
  EXPECT_FALSE(any_nan(automatic.final_state));
}

/// A head remembers as long as one of its channels does, whichever that is.
TEST(EmulatedKeyHistory, OneLastingChannelKeepsIt) {
  for (const int64_t slow : {3, 100}) {
    GdnCase c = in_three("slow_channel");
    GdnInputs inputs = make_inputs(c);
    std::fill(inputs.gate.values.begin(), inputs.gate.values.end(), -2.0);
    for (int64_t t = 0; t < c.T; ++t) inputs.gate(0, t, 0, slow) = 0.0;
    for (double& x : inputs.initial.values) x = std::nan("");
    const GdnOutputs forget = run(c, inputs, SLUICE_HISTORY_FORGET);
    ASSERT_EQ(forget.code, SLUICE_OK) << forget.message;
    EXPECT_TRUE(any_nan(forget.final_state)) << slow;
  }
}

/// Nothing decays in the chunk before a boundary, all does behind it, after a while: whoever looked
/// there would begin too late.
TEST(EmulatedKeyHistory, ChannelsAreLookedAtBeforeTheBoundary) {
  GdnCase c = in_three("before");
  GdnInputs inputs = make_inputs(c);
  for (int64_t t = 0; t < c.T; ++t) {
    const int64_t chunk = t / 64 % 10;
    const bool still = chunk == 3 || chunk == 6 || ((chunk == 4 || chunk == 7) && t % 64 < 32);
    for (int64_t i = 0; i < c.K; ++i) inputs.gate(0, t, 0, i) = still ? 0.0 : -2.0;
  }
  const GdnOutputs strict = run(c, inputs, SLUICE_HISTORY_STRICT),
                   forget = run(c, inputs, SLUICE_HISTORY_FORGET);
  ASSERT_EQ(forget.code, SLUICE_OK) << forget.message;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < strict.o.values.size(); ++i) {
    largest = std::max(largest, std::abs(strict.o.values[i]));
    difference = std::max(difference, std::abs(forget.o.values[i] - strict.o.values[i]));
  }
  EXPECT_LE(difference, 0x1p-7 * largest);  // a rounding to bfloat16
}

/// Two channels that decay by turns: each alone forgets within two tokens, and the delta rule moves
/// what is left to the one that decays next.
TEST(EmulatedKeyHistory, ChannelsThatTakeTurnsKeepIt) {
  GdnCase c = in_three("turns");
  c.betas = BetaProfile::kTwo;
  GdnInputs inputs = make_inputs(c);
  for (int64_t t = 0; t < c.T; ++t) {
    for (int64_t i = 0; i < c.K; ++i) {
      inputs.k(0, t, 0, i) = i < 2 ? round_to(kBF16, std::sqrt(0.5)) : 0.0;
      inputs.gate(0, t, 0, i) = i == t % 2 ? 0.0 : -20.0;
    }
  }
  const GdnOutputs strict = run(c, inputs, SLUICE_HISTORY_STRICT),
                   forget = run(c, inputs, SLUICE_HISTORY_FORGET);
  ASSERT_EQ(forget.code, SLUICE_OK) << forget.message;
  EXPECT_EQ(forget.final_state.values, strict.final_state.values);
}

}  // namespace
}  // namespace sluice::check
