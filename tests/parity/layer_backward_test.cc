// Measures gradients of a layer on a backend against the float64 reference: packings, sizes, dtypes,
// packs, states, strides, what is wanted and what is not. Outputs start as NaN, memory between their
// elements is watched, and a call repeated has the same bits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "check/comparer.hpp"
#include "parity/draw.hpp"
#include "parity/layer_gradient_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

class LayerBackward : public ::testing::TestWithParam<LayerGradientConfig> {};

/// Rows that sequences have; all of what is no rows.
Array live(const LayerConfig& c, const std::string& name, Array x) {
  const bool rows = name == "dqkv" || name == "dk" || name == "dv" || name == "dz" ||
                    name == "db" || name == "da";
  if (!rows || !c.packed) return x;
  const int64_t row = x.size() / std::max<int64_t>(x.shape[1], 1);
  x.shape[1] = c.offsets().back();
  x.values.resize(static_cast<size_t>(row * x.shape[1]));
  return x;
}

/// NUM: in float32 sums of terms that cancel; in 16 bits what lies between the parts is rounded
/// too, and each part judges itself by a few such roundings.
double limit_of(const LayerGradientConfig& g) {
  const LayerConfig& c = g.layer;
  if (same_dtype(c.io, kF32) && same_dtype(g.gradients, kF32) && !g.gives_core) return 2e-5;
  const bool coarse = same_dtype(c.io, kBF16) || same_dtype(g.gradients, kBF16) ||
                      (g.gives_core && same_dtype(c.core, kBF16));
  return coarse ? 2e-2 : 4e-3;
}

TEST_P(LayerBackward, MatchesReference) {
  const LayerGradientConfig& g = GetParam();
  const GradientResult truth = run_gradients(g, SLUICE_IMPL_REFERENCE);
  const GradientResult found = run_gradients(g, implementations_under_test().front());
  const GradientResult again = run_gradients(g, implementations_under_test().front(), 0);
  for (const GradientResult* result : {&truth, &found, &again}) {
    ASSERT_EQ(result->call.code, SLUICE_OK) << result->call.message;
    EXPECT_TRUE(result->intact) << result->call.kernel << result->call.damage;
  }
  for (size_t i = 0; i < truth.gradients.size(); ++i) {
    const auto& [name, all] = truth.gradients[i];
    EXPECT_TRUE(same_bits(found.gradients[i].second, again.gradients[i].second)) << name;
    const Array expected = live(g.layer, name, all);
    if (expected.size() == 0) continue;
    const Array x = live(g.layer, name, found.gradients[i].second);
    const double limit = limit_of(g) * (expected.size() < 256 ? 2 : 1);
    const Verdict verdict =
        judge(name, compare_whole(view_of(x), view_of(expected)), {limit, 2 * limit, 2 * limit});
    EXPECT_TRUE(verdict.pass) << found.call.kernel << "\n" << verdict.line;
  }
}

/// WHY a workspace of zeros: what it held is not NaN then, as outputs are before the call.
TEST(LayerBackwardRows, PastTheLastSequenceStayOrAreZero) {
  for (const auto packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_SEPARATE}) {
    LayerGradientConfig g;
    LayerConfig& c = g.layer;
    c.packing = packing, c.packed = true, c.lengths = {4, 0, 9}, c.rows_past_end = 3;
    const GradientResult found = run_gradients(g, implementations_under_test().front(), 0x00);
    ASSERT_EQ(found.call.code, SLUICE_OK) << found.call.message;
    for (const auto& [name, x] : found.gradients) {
      const bool zeros = name == "dqkv" || name == "dk" || name == "dv";
      const bool rows = zeros || name == "dz" || name == "db" || name == "da";
      const int64_t end = rows ? x.size() / x.shape[1] * 13 : x.size();
      for (int64_t i = 0; i < x.size(); ++i) {
        const double value = x.values[static_cast<size_t>(i)];
        const bool as_before = zeros ? value == 0.0 : std::isnan(value);
        ASSERT_TRUE(i < end ? std::isfinite(value) : as_before) << name << " " << i;
      }
    }
  }
}

std::vector<LayerGradientConfig> configs() {
  std::vector<LayerGradientConfig> all;
  for (const auto packing :
       {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED, SLUICE_PACKING_SEPARATE}) {
    constexpr const char* kSuffixes[] = {"_flat", "_interleaved", "_separate"};
    const bool interleaved = packing == SLUICE_PACKING_INTERLEAVED;
    const bool separate = packing == SLUICE_PACKING_SEPARATE;
    const auto add = [&](const std::string& name, auto change) {
      LayerGradientConfig g;
      g.layer.packing = packing, g.layer.seed = 19 * all.size() + 5;
      g.layer.name = named(name, kSuffixes[packing]);
      change(g, g.layer);
      all.push_back(g);
    };
    for (const int64_t T : {1, 2, 17, 64, 65, 130}) {
      add(named("T", T), [&](auto&, auto& c) { c.T = T; });
    }
    add("no_tokens", [](auto&, auto& c) { c.T = 0; });
    for (const int64_t W : {2, 3, 4}) {
      add(named("W", W), [&](auto&, auto& c) { c.W = W, c.L = W + 2, c.has_bias = W != 3; });
    }
    add("pack",
        [](auto&, auto& c) { c.packed = true, c.lengths = {5, 0, 70, 1}, c.rows_past_end = 4; });
    add("no_states", [](auto&, auto& c) { c.states = false, c.T = 70; });
    add("one_group", [](auto&, auto& c) { c.H = c.HV = 3; });
    add("vk", [](auto&, auto& c) { c.layout = SLUICE_STATE_VK, c.T = 30; });
    add("negative", [](auto&, auto& c) { c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.T = 40; });
    add("sigmoid", [](auto&, auto& c) { c.gate_activation = SLUICE_ACTIVATION_SIGMOID; });
    add("scale", [](auto&, auto& c) { c.scale = 0.3; });
    add("core", [](auto& g, auto& c) { g.gives_core = true, c.states = false, c.T = 33; });
    add("bounded", [](auto&, auto& c) { c.gate_lower_bound = -4, c.T = 40; });
    add("bounded_without_rates",
        [](auto&, auto& c) { c.gate_lower_bound = -2, c.has_rates = false, c.T = 20; });
    if (!interleaved) {
      add("cyclic", [](auto&, auto& c) { c.head_map = SLUICE_HEAD_MAP_CYCLIC, c.T = 20; });
      add("key_gates", [](auto&, auto& c) { c.key_gates = true, c.T = 40; });
      add("key_gates_pack", [](auto&, auto& c) {
        c.key_gates = c.packed = true, c.lengths = {5, 0, 70, 1}, c.rows_past_end = 4;
      });
      add("key_gates_bounded", [](auto&, auto& c) {
        c.key_gates = true, c.gate_lower_bound = -5, c.gate_activation = SLUICE_ACTIVATION_SIGMOID;
        c.H = c.HV = 3, c.T = 30;
      });
    }
    for (unsigned bit = 0; bit < (separate ? 19u : 11u); ++bit) {
      add(named("only_", bit), [&](auto& g, auto&) { g.wanted = 1u << bit; });
    }
    for (const sluice_dtype io : {kBF16, kF16}) {
      add(named("model_", dtype_name(io)), [&](auto& g, auto& c) {
        c.io = c.out = c.core = io, g.gradients = io, c.K = c.V = 128, c.T = 100, c.B = 1;
      });
      add(named("model_pack_", dtype_name(io)), [&](auto& g, auto& c) {
        c.io = c.out = c.core = io, g.gradients = io, c.K = c.V = 128;
        c.packed = true, c.lengths = {65, 0, 30}, c.rows_past_end = 2;
      });
      add(named("model_core_", dtype_name(io)), [&](auto& g, auto& c) {
        c.io = c.out = c.core = io, g.gradients = io, g.gives_core = true, c.states = false;
        c.K = c.V = 128, c.T = 70, c.B = 1, c.rounding = SLUICE_NORM_ROUND_HF;
      });
    }
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed * 41 + 7);
      add(named("seed", seed), [&](auto& g, auto& c) {
        c.wild = true, c.H = 1 + pick(&random, 3), c.HV = c.H * (1 + pick(&random, 3));
        c.K = 1 + pick(&random, 70), c.V = 1 + pick(&random, 70), c.W = 2 + pick(&random, 3);
        c.T = pick(&random, 90), c.L = c.W - 1 + pick(&random, 3);
        c.packed = chance(&random, 2), c.lengths = {pick(&random, 70), 0, pick(&random, 9)};
        c.rows_past_end = pick(&random, 3);
        const sluice_dtype io = one_of(&random, {kF32, kBF16, kF16});
        c.io = c.out = io, g.gradients = one_of(&random, {kF32, io});
        c.parameters = one_of(&random, {kF32, io}), c.has_bias = chance(&random, 2);
        c.states = chance(&random, 2);
        c.key_gates = separate && chance(&random, 2);
      });
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calls, LayerBackward, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return test.param.layer.name; });

}  // namespace
}  // namespace sluice::check
