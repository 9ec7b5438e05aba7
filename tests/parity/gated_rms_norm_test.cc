// Measures gated_rms_norm on a backend against the float64 reference: sizes, ranks, dtypes, the two
// roundings, both activations, random strides, in place. Memory between the elements is watched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "check/comparer.hpp"
#include "parity/free_tensor.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

struct NormConfig {
  std::string name;
  uint64_t seed = 1;
  std::vector<int64_t> shape = {5, 3, 64};
  sluice_dtype x = kF32, z = kF32, weight = kF32, out = kF32;
  double eps = 0.0;
  double loudness = 1.0;  ///< of x
  sluice_activation activation = SLUICE_ACTIVATION_SILU;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
  bool wild = false, in_place = false;
};

void PrintTo(const NormConfig& config, std::ostream* out) { *out << config.name; }
std::string config_name(const ::testing::TestParamInfo<NormConfig>& info) {
  return info.param.name;
}

struct NormResult {
  int code = SLUICE_OK;
  std::string kernel;
  Array out;
  bool intact = true;
};

NormResult run(const NormConfig& c, sluice_implementation implementation) {
  Random random(c.seed);
  const auto tensor = [&](sluice_dtype dtype, Array values, Freedom wild) {
    FreeTensor t(dtype, values.shape, c.wild ? wild : Freedom::kDense, &random);
    t.assign(values.values);
    return t;
  };
  Array x_values = make_normal(c.shape, c.seed + 1);
  for (double& value : x_values.values) value *= c.loudness;
  // In place, x is laid out as an output.
  FreeTensor x = tensor(c.x, x_values, c.in_place ? Freedom::kOutput : Freedom::kInput);
  FreeTensor z = tensor(c.z, make_normal(c.shape, c.seed + 2), Freedom::kInput);
  FreeTensor weight =
      tensor(c.weight, make_normal({c.shape.back()}, c.seed + 3), Freedom::kAnyInput);
  FreeTensor out(c.out, c.shape, c.wild ? Freedom::kOutput : Freedom::kDense, &random);
  for (FreeTensor* t : {&x, &z, &weight, &out}) t->remember();
  sluice_gated_rms_norm_args args{};
  args.struct_size = sizeof args;
  args.x = x.view(), args.z = z.view(), args.weight = weight.view();
  args.out = c.in_place ? x.view() : out.view();
  args.eps = c.eps;
  args.activation = c.activation;
  args.rounding = c.rounding;
  args.implementation = implementation;
  const CallOutcome call = call_operator(SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm, args);
  NormResult result;
  result.code = call.code;
  result.kernel = call.kernel;
  result.out = to_array(args.out);
  result.intact = z.unchanged() && weight.unchanged() && out.gaps_unchanged() &&
                  x.gaps_unchanged() && (c.in_place || x.unchanged()) && call.damage.empty();
  return result;
}

class GatedRmsNorm : public ::testing::TestWithParam<NormConfig> {};

TEST_P(GatedRmsNorm, MatchesReference) {
  const NormConfig& c = GetParam();
  const NormResult truth = run(c, SLUICE_IMPL_REFERENCE);
  const NormResult found = run(c, implementations_under_test().front());
  ASSERT_EQ(truth.code, SLUICE_OK);
  ASSERT_EQ(found.code, SLUICE_OK) << sluice_last_error();
  EXPECT_TRUE(truth.intact);
  EXPECT_TRUE(found.intact) << found.kernel;
  if (truth.out.size() == 0) return;
  // One rounding of the same number, or of a neighbour where float32 met a midpoint of x's dtype.
  const bool rounds_x = c.rounding == SLUICE_NORM_ROUND_HF;
  const sluice_dtype coarse = rounds_x && !same_dtype(c.x, kF32) ? c.x : c.out;
  const double limit = same_dtype(coarse, kF32) ? 1e-6 : same_dtype(coarse, kF16) ? 3e-4 : 2e-3;
  const Verdict verdict =
      judge("out", compare_whole(view_of(found.out), view_of(truth.out)), {limit, limit, limit});
  EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
}

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, GatedRmsNorm, ::testing::ValuesIn(configs), config_name)

std::vector<NormConfig> sizes() {
  std::vector<NormConfig> configs;
  for (const int64_t V : {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 128, 255, 256, 1024}) {
    configs.push_back({.name = named("V", V), .shape = {7, 3, V}});
    configs.push_back({.name = named("V", V, "_bfloat16"),
                       .shape = {7, 3, V},
                       .x = kBF16,
                       .z = kBF16,
                       .out = kBF16});
  }
  configs.push_back({.name = "rank2", .shape = {9, 64}});
  configs.push_back({.name = "rank4", .shape = {2, 3, 4, 40}});
  configs.push_back({.name = "no_rows", .shape = {0, 3, 40}});
  configs.push_back({.name = "loud", .loudness = 1e15});
  configs.push_back({.name = "quiet", .loudness = 1e-15});
  configs.push_back({.name = "zero", .loudness = 0.0});
  configs.push_back({.name = "large_eps", .eps = 100.0});
  return configs;
}
SLUICE_CONFIGS(Sizes, sizes());

std::vector<NormConfig> dtypes() {
  std::vector<NormConfig> configs;
  uint64_t seed = 100;
  for (const sluice_dtype x : {kF32, kBF16, kF16}) {
    for (const sluice_dtype z : {kF32, kBF16, kF16}) {
      for (const sluice_dtype out : {kF32, kBF16, kF16}) {
        for (const auto rounding : {SLUICE_NORM_ROUND_ONCE, SLUICE_NORM_ROUND_HF}) {
          for (const auto activation : {SLUICE_ACTIVATION_SILU, SLUICE_ACTIVATION_SIGMOID}) {
            NormConfig c{.name =
                             named(dtype_name(x), "_", dtype_name(z), "_", dtype_name(out),
                                   rounding == SLUICE_NORM_ROUND_HF ? "_hf" : "_once",
                                   activation == SLUICE_ACTIVATION_SILU ? "_silu" : "_sigmoid")};
            c.seed = seed++, c.x = x, c.z = z, c.out = out, c.weight = z;
            c.rounding = rounding, c.activation = activation;
            c.wild = seed % 2 == 0;
            c.in_place = same_dtype(x, out) && seed % 3 == 0;
            configs.push_back(c);
          }
        }
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(Dtypes, dtypes());

std::vector<NormConfig> random_configs() {
  std::vector<NormConfig> configs;
  constexpr sluice_dtype kFloats[] = {kF32, kBF16, kF16};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed * 31 + 5);
    const auto any_float = [&] { return kFloats[pick(&random, 3)]; };
    NormConfig c{.name = named("seed", seed), .seed = seed};
    c.shape.clear();
    for (int64_t axis = 1 + pick(&random, 3); axis > 0; --axis) {
      c.shape.push_back(1 + pick(&random, 5));
    }
    c.shape.push_back(1 + pick(&random, 150));
    c.x = any_float(), c.z = any_float(), c.weight = any_float(), c.out = any_float();
    c.rounding = chance(&random, 2) ? SLUICE_NORM_ROUND_ONCE : SLUICE_NORM_ROUND_HF;
    c.activation = chance(&random, 2) ? SLUICE_ACTIVATION_SILU : SLUICE_ACTIVATION_SIGMOID;
    c.wild = !chance(&random, 5), c.in_place = chance(&random, 3);
    if (c.in_place) c.out = c.x;
    configs.push_back(c);
  }
  return configs;
}
SLUICE_CONFIGS(Random, random_configs());

}  // namespace
}  // namespace sluice::check
