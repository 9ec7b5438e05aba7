// Measures layer_prefill and layer_decode on a backend against the float64 reference, for both
// packings and every option, and against the separate operators that they are made of. Memory that
// may not be written is compared byte for byte.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/single_layers.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr int kSeeds = 80;

using Configs = std::vector<LayerConfig>;

std::string config_name(const ::testing::TestParamInfo<LayerConfig>& info) {
  return info.param.name;
}

class Layer : public ::testing::TestWithParam<LayerConfig> {};

TEST_P(Layer, MatchesReference) {
  const LayerConfig& c = GetParam();
  const LayerResult truth = run_layer(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  EXPECT_EQ(truth.damage, "");
  const LayerResult found = run_layer(c, implementations_under_test().front());
  const Verdict verdict = judge_layer(c, found, truth);
  EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
}

/// WHY a workspace of zeros: what it held is not NaN then, as outputs are before the call.
TEST(LayerRows, PastTheLastSequenceStay) {
  LayerConfig c{.name = "past"};
  c.packed = true, c.lengths = {4, 0, 9}, c.rows_past_end = 3;
  c.io = c.out = c.core = c.conv_state = kBF16;
  const LayerResult found = run_layer(c, implementations_under_test().front(), 0x00);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  EXPECT_EQ(found.damage, "");
  for (const Array* rows : {&found.core, &found.out}) {
    const int64_t row = c.HV * c.V;
    for (int64_t i = 0; i < rows->size(); ++i) {
      ASSERT_EQ(std::isnan(rows->values[static_cast<size_t>(i)]), i / row >= 13) << i;
    }
  }
}

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, Layer, ::testing::ValuesIn(configs), config_name)

constexpr sluice_packing kPackings[] = {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED};
const char* name_of(sluice_packing packing) {
  constexpr const char* kNames[] = {"_flat", "_interleaved", "_separate"};
  return kNames[packing];
}

Configs prefill() {
  Configs configs;
  for (const sluice_packing packing : kPackings) {
    LayerConfig base{.name = ""};
    base.packing = packing;
    const auto with = [&](const std::string& name, auto change) {
      LayerConfig c = base;
      c.name = named(name, name_of(packing));
      change(c);
      configs.push_back(c);
    };
    for (const int64_t T : {0, 1, 2, 3, 17, 64, 65, 130}) {
      with(named("T", T), [&](LayerConfig& c) { c.T = T; });
    }
    for (const int64_t W : {2, 3, 4}) {
      with(named("W", W, "_ring"),
           [&](LayerConfig& c) { c.W = W, c.L = W + 2, c.form = SLUICE_CONV_STATE_RING, c.T = 9; });
      with(named("W", W, "_no_bias"), [&](LayerConfig& c) { c.W = W, c.has_bias = false; });
    }
    for (const int64_t r : {1, 2, 3, 4}) {
      with(named("r", r), [&](LayerConfig& c) { c.H = 2, c.HV = 2 * r, c.T = 20; });
      with(named("r", r, "_dims"),
           [&](LayerConfig& c) { c.H = 1, c.HV = r, c.K = 60, c.V = 33, c.T = 70; });
    }
    with("K128_V128", [](LayerConfig& c) { c.K = c.V = 128, c.B = 1, c.T = 40; });
    with("packed", [](LayerConfig& c) {
      c.packed = true, c.lengths = {0, 5, 70, 1, 0, 64}, c.rows_past_end = 3;
    });
    with("packed_core_bfloat16", [](LayerConfig& c) {
      c.packed = true, c.lengths = {4, 0, 9}, c.rows_past_end = 3, c.core = kBF16;
    });
    with("packed_pads", [](LayerConfig& c) {
      c.packed = true, c.lengths = {3, 5, 2}, c.padded = {1}, c.index = kI64, c.pad_below = 1;
    });
    with("nan_pads",
         [](LayerConfig& c) { c.B = 3, c.padded = {0, 2}, c.nan_pads = true, c.V = 17; });
    with("packed_nan_pads", [](LayerConfig& c) {
      c.packed = true, c.lengths = {7, 2, 1, 5}, c.padded = {1, 3}, c.nan_pads = true;
      c.K = c.V = 64, c.io = c.out = c.core = c.conv_state = kBF16;
    });
    with("random_strides", [](LayerConfig& c) { c.wild = true, c.T = 33; });
    with("two_pools", [](LayerConfig& c) { c.in_place = false, c.slots = Slots::kShared; });
    with("no_slots", [](LayerConfig& c) { c.in_place = false, c.slots = Slots::kNone; });
    with("no_states", [](LayerConfig& c) { c.states = false; });
    with("fresh", [](LayerConfig& c) { c.B = 3, c.fresh = {0, 2}; });
    with("vk", [](LayerConfig& c) { c.layout = SLUICE_STATE_VK; });
    with("no_core_out", [](LayerConfig& c) { c.has_core = false; });
    with("sigmoid", [](LayerConfig& c) { c.gate_activation = SLUICE_ACTIVATION_SIGMOID; });
    with("negative", [](LayerConfig& c) { c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE; });
    with("scale", [](LayerConfig& c) { c.scale = 0.7; });
    for (const sluice_dtype io : {kBF16, kF16}) {
      for (const auto rounding :
           {SLUICE_NORM_ROUND_ONCE, SLUICE_NORM_ROUND_HF, SLUICE_NORM_ROUND_INPUT}) {
        with(named(dtype_name(io), "_rounding", static_cast<int>(rounding)), [&](LayerConfig& c) {
          c.io = c.out = c.core = c.conv_state = io, c.rounding = rounding, c.T = 70;
        });
      }
    }
  }
  LayerConfig cyclic{.name = "cyclic_flat", .T = 20, .HV = 6};
  cyclic.head_map = SLUICE_HEAD_MAP_CYCLIC;
  configs.push_back(cyclic);
  return configs;
}
SLUICE_CONFIGS(Prefill, prefill());

/// Also with more heads than a GPU has places for.
Configs single_tokens() {
  Configs configs = single_layers();
  for (const size_t i : {size_t{9}, size_t{10}, size_t{11}}) {
    LayerConfig many = configs[i];
    many.name += "_many", many.B = 60;
    configs.push_back(many);
  }
  return configs;
}
SLUICE_CONFIGS(SingleTokens, single_tokens());

Configs decode() {
  Configs configs;
  for (const sluice_packing packing : kPackings) {
    LayerConfig base{.name = "", .op = SLUICE_OP_LAYER_DECODE, .B = 3, .T = 1};
    base.packing = packing;
    const auto with = [&](const std::string& name, auto change) {
      LayerConfig c = base;
      c.name = named(name, name_of(packing));
      change(c);
      configs.push_back(c);
    };
    for (const int64_t T : {0, 1, 2, 3, 8, 16}) {
      with(named("T", T), [&](LayerConfig& c) { c.T = T; });
      with(named("T", T, "_ring"),
           [&](LayerConfig& c) { c.T = T, c.form = SLUICE_CONV_STATE_RING, c.L = 7; });
      with(named("T", T, "_accepted"), [&](LayerConfig& c) {
        c.T = T, c.num_accepted = true, c.columns = std::max<int64_t>(T, 1), c.L = c.W - 1 + T;
        c.slots = Slots::kShared, c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
      });
    }
    for (const int64_t r : {1, 2, 3, 4}) {
      with(named("r", r), [&](LayerConfig& c) { c.H = 2, c.HV = 2 * r, c.K = 40, c.V = 24; });
    }
    for (const int64_t W : {2, 3}) with(named("W", W), [&](LayerConfig& c) { c.W = W; });
    with("packed", [](LayerConfig& c) {
      c.packed = true, c.lengths = {1, 0, 16, 2}, c.rows_past_end = 2, c.padded = {3};
    });
    with("pads", [](LayerConfig& c) { c.padded = {0, 2}; });
    with("nan_pads", [](LayerConfig& c) { c.padded = {0, 2}, c.nan_pads = true; });
    with("null_slot", [](LayerConfig& c) { c.padded = {1}, c.pad_below = 1; });
    with("fresh", [](LayerConfig& c) { c.fresh = {1}; });
    with("no_states_written", [](LayerConfig& c) { c.state_writes = SLUICE_STATE_WRITE_NONE; });
    with("two_pools", [](LayerConfig& c) { c.in_place = false; });
    with("vk_random_strides", [](LayerConfig& c) { c.wild = true, c.layout = SLUICE_STATE_VK; });
    with("state_bfloat16", [](LayerConfig& c) { c.state = kBF16; });
    with("no_core_out", [](LayerConfig& c) { c.has_core = false; });
    for (const sluice_dtype io : {kBF16, kF16}) {
      for (const auto rounding :
           {SLUICE_NORM_ROUND_ONCE, SLUICE_NORM_ROUND_HF, SLUICE_NORM_ROUND_INPUT}) {
        with(named(dtype_name(io), "_rounding", static_cast<int>(rounding)), [&](LayerConfig& c) {
          c.io = c.out = c.core = c.conv_state = io, c.rounding = rounding;
        });
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(Decode, decode());

/// Key-wise and bounded gates, and projections, convolutions and states of each of q, k and v.
Configs kda(sluice_op op) {
  Configs configs;
  for (const sluice_packing packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_SEPARATE}) {
    const auto with = [&](const std::string& name, auto change) {
      LayerConfig c{.name = named(name, name_of(packing)), .op = op};
      c.T = op == SLUICE_OP_LAYER_PREFILL ? 70 : 3;
      c.packing = packing, c.key_gates = true, c.gate_activation = SLUICE_ACTIVATION_SIGMOID;
      change(c);
      configs.push_back(c);
    };
    with("raw", [](LayerConfig&) {});
    with("one_token", [](LayerConfig& c) { c.T = 1; });
    with("no_tokens", [](LayerConfig& c) { c.T = 0; });
    with("bounded", [](LayerConfig& c) { c.gate_lower_bound = -5, c.HV = 6; });
    with("no_rates", [](LayerConfig& c) { c.gate_lower_bound = -2.5, c.has_rates = false; });
    with("gates_of_heads", [](LayerConfig& c) { c.key_gates = false; });
    with("bounded_gates_of_heads",
         [](LayerConfig& c) { c.key_gates = false, c.gate_lower_bound = -5; });
    with("ring", [](LayerConfig& c) { c.form = SLUICE_CONV_STATE_RING, c.L = 7, c.W = 3; });
    with("pads", [](LayerConfig& c) {
      c.B = 3, c.padded = {0, 2}, c.nan_pads = true, c.pad_below = 1, c.has_bias = false;
    });
    with("two_pools", [](LayerConfig& c) { c.in_place = false, c.slots = Slots::kShared; });
    with("vk_random_strides", [](LayerConfig& c) { c.wild = true, c.layout = SLUICE_STATE_VK; });
    with("packed", [](LayerConfig& c) {
      c.packed = true, c.lengths = {5, 0, 16, 2}, c.rows_past_end = 2, c.padded = {3};
      c.fresh = {2};
    });
    with("K128_V128", [](LayerConfig& c) {
      c.K = c.V = 128, c.HV = 2, c.io = c.out = c.core = c.conv_state = c.parameters = kBF16;
      c.rounding = SLUICE_NORM_ROUND_HF;
    });
    with("float16",
         [](LayerConfig& c) { c.K = 64, c.V = 32, c.io = c.out = c.core = c.conv_state = kF16; });
  }
  return configs;
}
SLUICE_CONFIGS(KdaPrefill, kda(SLUICE_OP_LAYER_PREFILL));
SLUICE_CONFIGS(KdaDecode, kda(SLUICE_OP_LAYER_DECODE));

Configs kda_speculation() {
  Configs configs;
  for (const sluice_packing packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_SEPARATE}) {
    LayerConfig c{.name = named("accepted", name_of(packing)), .op = SLUICE_OP_LAYER_DECODE};
    c.packing = packing, c.key_gates = true;
    c.T = 4, c.num_accepted = true, c.columns = 4, c.L = c.W - 1 + c.T;
    c.slots = Slots::kShared, c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
    configs.push_back(c);
  }
  return configs;
}
SLUICE_CONFIGS(KdaSpeculation, kda_speculation());

LayerConfig draw(int seed) {
  Random random(static_cast<uint64_t>(seed) * 15485863 + 7);
  Random* r = &random;
  LayerConfig c{.name = named("seed", seed), .seed = static_cast<uint64_t>(seed)};
  const bool decode = chance(r, 2);
  c.op = decode ? SLUICE_OP_LAYER_DECODE : SLUICE_OP_LAYER_PREFILL;
  c.B = pick(r, 4), c.T = pick(r, decode ? 17 : 90);
  c.H = 1 + pick(r, 3), c.HV = c.H * (1 + pick(r, 3));
  c.K = 12 + pick(r, 40), c.V = 8 + pick(r, 40), c.W = 2 + pick(r, 3);
  c.L = c.W - 1 + pick(r, 5);
  c.packed = chance(r, 2);
  for (int64_t n = pick(r, 5); c.packed && n > 0; --n) c.lengths.push_back(pick(r, 17));
  c.rows_past_end = pick(r, 3), c.wild = !chance(r, 4);
  constexpr sluice_dtype kFloats[] = {kF32, kBF16, kF16};
  c.io = kFloats[pick(r, 3)], c.out = c.core = c.io;
  c.conv_state = chance(r, 2) ? c.io : kF32;
  c.state = kFloats[chance(r, 2) ? 0 : pick(r, 3)];
  c.parameters = chance(r, 2) ? kF32 : c.io;
  c.index = chance(r, 2) ? kI32 : kI64;
  c.packing = kPackings[pick(r, 2)];
  c.form = chance(r, 2) ? SLUICE_CONV_STATE_RING : SLUICE_CONV_STATE_SHIFT;
  c.layout = chance(r, 2) ? SLUICE_STATE_KV : SLUICE_STATE_VK;
  c.gate_activation = chance(r, 2) ? SLUICE_ACTIVATION_SILU : SLUICE_ACTIVATION_SIGMOID;
  c.rounding = static_cast<sluice_norm_rounding>(pick(r, 3));
  c.has_bias = chance(r, 2), c.has_core = chance(r, 2), c.in_place = chance(r, 2);
  if (c.packing == SLUICE_PACKING_FLAT && chance(r, 3)) c.head_map = SLUICE_HEAD_MAP_CYCLIC;
  if (chance(r, 3)) c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
  for (int64_t n = 0; n < c.sequences(); ++n) {
    if (chance(r, 5)) c.padded.push_back(n);
    if (chance(r, 5)) c.fresh.push_back(n);
  }
  if (c.packing == SLUICE_PACKING_FLAT && chance(r, 2)) c.packing = SLUICE_PACKING_SEPARATE;
  c.key_gates = c.packing != SLUICE_PACKING_INTERLEAVED && chance(r, 2);
  if (chance(r, 3)) c.gate_lower_bound = -5;
  if (!decode) return c;
  if (chance(r, 4)) c.state_writes = SLUICE_STATE_WRITE_NONE;
  if (c.state_writes == SLUICE_STATE_WRITE_LAST && chance(r, 2)) {
    c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.columns = 16, c.slots = Slots::kShared;
    c.K = 12, c.V = 8;
    c.num_accepted = c.form == SLUICE_CONV_STATE_SHIFT;
    if (c.num_accepted) c.L = c.W - 2 + 16;
  }
  return c;
}

Configs random_configs(sluice_op op) {
  Configs configs;
  for (int seed = 0; seed < kSeeds; ++seed) {
    if (const LayerConfig c = draw(seed); c.op == op) configs.push_back(c);
  }
  return configs;
}
SLUICE_CONFIGS(RandomPrefill, random_configs(SLUICE_OP_LAYER_PREFILL));
SLUICE_CONFIGS(RandomDecode, random_configs(SLUICE_OP_LAYER_DECODE));

}  // namespace
}  // namespace sluice::check
