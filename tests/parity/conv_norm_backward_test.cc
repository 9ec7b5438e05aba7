// Measures gradients of the convolution and of the gated norm on a backend against the float64
// reference: sizes, dtypes, packs, states, strides, what is wanted and what is not. Outputs start as
// NaN, memory between their elements is watched, and a call repeated has the same bits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check/comparer.hpp"
#include "parity/draw.hpp"
#include "parity/gradient_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

template <class Config>
std::string config_name(const ::testing::TestParamInfo<Config>& info) {
  return info.param.name;
}

/// float32 arithmetic, then one rounding of the same number.
template <class Config>
void expect_parity(const Config& c, double limit) {
  const GradientResult truth = run_gradients(c, SLUICE_IMPL_REFERENCE);
  const GradientResult found = run_gradients(c, implementations_under_test().front());
  const GradientResult again = run_gradients(c, implementations_under_test().front(), 0);
  for (const GradientResult* result : {&truth, &found, &again}) {
    ASSERT_EQ(result->call.code, SLUICE_OK) << result->call.message;
    EXPECT_TRUE(result->intact) << result->call.kernel << result->call.damage;
  }
  for (size_t i = 0; i < truth.gradients.size(); ++i) {
    const auto& [name, expected] = truth.gradients[i];
    EXPECT_TRUE(same_bits(found.gradients[i].second, again.gradients[i].second)) << name;
    if (expected.size() == 0) continue;
    const Verdict verdict =
        judge(name, compare_whole(view_of(found.gradients[i].second), view_of(expected)),
              {limit, limit, limit});
    EXPECT_TRUE(verdict.pass) << found.call.kernel << "\n" << verdict.line;
  }
}

double rounding_of(sluice_dtype dtype, double float32) {
  return same_dtype(dtype, kF32) ? float32 : same_dtype(dtype, kF16) ? 3e-4 : 2e-3;
}

class CausalConv1dBackward : public ::testing::TestWithParam<ConvGradientConfig> {};

TEST_P(CausalConv1dBackward, MatchesReference) {
  expect_parity(GetParam(), rounding_of(GetParam().gradients, 2e-6));
}

std::vector<ConvGradientConfig> conv_configs() {
  std::vector<ConvGradientConfig> all;
  const auto add = [&](const std::string& name, auto change) {
    ConvGradientConfig c;
    c.name = name, c.seed = 17 * all.size() + 3;
    change(&c);
    all.push_back(c);
  };
  for (const int64_t W : {2, 3, 4}) {
    for (const int64_t T : {1, 2, 3, 4, 5, 33}) {
      add(named("W", W, "_T", T), [&](auto* c) { c->W = W, c->T = T; });
      add(named("W", W, "_T", T, "_wide_states"),
          [&](auto* c) { c->W = W, c->T = T, c->L = W + 4; });
    }
  }
  add("none", [](auto* c) { c->activation = SLUICE_ACTIVATION_NONE, c->T = 40; });
  add("many_tokens", [](auto* c) { c->T = 1100, c->D = 40; });
  add("many_channels", [](auto* c) { c->T = 60, c->D = 600; });
  add("one_channel", [](auto* c) { c->T = 600, c->D = 1; });
  add("no_tokens", [](auto* c) { c->T = 0; });
  add("no_sequences", [](auto* c) { c->B = 0, c->T = 3; });
  add("packed", [](auto* c) { c->lengths = {5, 0, 1, 700, 2, 3}; });
  add("packed_rows_past_end", [](auto* c) { c->lengths = {500, 20}, c->rows_past_end = 700; });
  add("packed_none", [](auto* c) { c->lengths = {0, 0}, c->rows_past_end = 3, c->L = 5; });
  add("channel_first", [](auto* c) { c->channel_first = true, c->T = 50; });
  add("no_states", [](auto* c) { c->has_initial = c->has_final = false, c->wanted = 7; });
  add("from_zeros", [](auto* c) { c->has_initial = false; });
  add("no_bias", [](auto* c) { c->has_bias = false, c->T = 9; });
  for (unsigned bit = 0; bit < 4; ++bit) {
    add(named("only_", bit), [&](auto* c) { c->wanted = 1u << bit, c->T = 20; });
  }
  add("nothing", [](auto* c) { c->wanted = 0; });
  for (const sluice_dtype type : {kBF16, kF16}) {
    for (const int64_t W : {2, 3, 4}) {
      add(named("model_", dtype_name(type), "_W", W), [&](auto* c) {
        c->io = c->gradients = type, c->W = W, c->D = 264, c->lengths = {150, 0, 2, 61};
        c->rows_past_end = 5, c->L = 4;
      });
    }
  }
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype gradients : {kF32, kBF16, kF16}) {
      add(named(dtype_name(io), "_", dtype_name(gradients)), [&](auto* c) {
        c->io = io, c->parameters = gradients, c->gradients = gradients, c->T = 70, c->D = 72;
      });
    }
  }
  // From 4096 tokens on GPUs cut longer slabs.
  add("long_slabs", [](auto* c) { c->T = 4130, c->D = 3, c->B = 1; });
  add("long_slabs_packed_bfloat16",
      [](auto* c) { c->io = c->gradients = kBF16, c->D = 8, c->lengths = {4000, 3, 0, 129}; });
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed * 31 + 5);
    add(named("seed", seed), [&](auto* c) {
      const auto any = [&] { return one_of(&random, {kF32, kBF16, kF16}); };
      c->seed = seed, c->wild = true, c->io = any(), c->parameters = any(), c->gradients = any();
      c->B = 1 + pick(&random, 3), c->T = pick(&random, 30), c->D = 1 + pick(&random, 40);
      c->W = 2 + pick(&random, 3), c->L = c->W - 1 + pick(&random, 6);
      if (chance(&random, 2)) c->lengths = {pick(&random, 9), pick(&random, 9), pick(&random, 40)};
      c->rows_past_end = pick(&random, 4), c->channel_first = chance(&random, 3);
      c->has_bias = chance(&random, 2), c->has_initial = chance(&random, 2);
      c->has_final = chance(&random, 2), c->wanted = static_cast<unsigned>(pick(&random, 16));
      c->activation = one_of(&random, {SLUICE_ACTIVATION_NONE, SLUICE_ACTIVATION_SILU});
    });
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calls, CausalConv1dBackward, ::testing::ValuesIn(conv_configs()),
                         config_name<ConvGradientConfig>);

class GatedRmsNormBackward : public ::testing::TestWithParam<NormGradientConfig> {};

TEST_P(GatedRmsNormBackward, MatchesReference) {
  const NormGradientConfig& c = GetParam();
  // Where float32 meets a midpoint of x's dtype, the normalised x is a neighbour.
  const bool rounds_x = c.rounding == SLUICE_NORM_ROUND_HF && !same_dtype(c.x, kF32);
  expect_parity(c, std::max(rounding_of(c.gradients, 2e-6), rounds_x ? rounding_of(c.x, 0) : 0.0));
}

std::vector<NormGradientConfig> norm_configs() {
  std::vector<NormGradientConfig> all;
  const auto add = [&](const std::string& name, auto change) {
    NormGradientConfig c;
    c.name = name, c.seed = 13 * all.size() + 7;
    change(&c);
    all.push_back(c);
  };
  for (const int64_t V : {2, 7, 8, 16, 17, 33, 64, 128, 200, 256, 1030}) {
    add(named("V", V), [&](auto* c) { c->shape = {7, 3, V}; });
    add(named("V", V, "_bfloat16"),
        [&](auto* c) { c->shape = {7, 3, V}, c->x = c->z = c->d_out = c->gradients = kBF16; });
  }
  for (const int64_t V : {64, 128, 200}) {
    add(named("V", V, "_float16_hf"), [&](auto* c) {
      c->shape = {90, 3, V}, c->x = c->z = c->d_out = c->gradients = kF16;
      c->rounding = SLUICE_NORM_ROUND_HF;
    });
  }
  add("rank2", [](auto* c) { c->shape = {9, 64}; });
  add("rank4", [](auto* c) { c->shape = {2, 3, 4, 40}; });
  add("many_rows", [](auto* c) { c->shape = {90, 12, 128}; });
  add("no_rows", [](auto* c) { c->shape = {0, 3, 40}; });
  add("rank4_bfloat16",
      [](auto* c) { c->shape = {3, 40, 5, 128}, c->x = c->z = c->d_out = c->gradients = kBF16; });
  add("loud", [](auto* c) { c->loudness = 1e12; });
  add("quiet", [](auto* c) { c->loudness = 1e-12; });
  for (unsigned bit = 0; bit < 3; ++bit) {
    add(named("only_", bit), [&](auto* c) { c->wanted = 1u << bit; });
  }
  add("nothing", [](auto* c) { c->wanted = 0; });
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed * 37 + 11);
    add(named("seed", seed), [&](auto* c) {
      const auto any = [&] { return one_of(&random, {kF32, kBF16, kF16}); };
      c->seed = seed, c->wild = true, c->weight = any();
      c->x = any(), c->z = any(), c->d_out = any(), c->gradients = any();
      c->shape = {1 + pick(&random, 9), 1 + pick(&random, 5), 2 + pick(&random, 140)};
      c->activation = one_of(&random, {SLUICE_ACTIVATION_SIGMOID, SLUICE_ACTIVATION_SILU});
      c->rounding = one_of(&random, {SLUICE_NORM_ROUND_ONCE, SLUICE_NORM_ROUND_HF});
      c->wanted = static_cast<unsigned>(1 + pick(&random, 7));
    });
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calls, GatedRmsNormBackward, ::testing::ValuesIn(norm_configs()),
                         config_name<NormGradientConfig>);

}  // namespace
}  // namespace sluice::check
