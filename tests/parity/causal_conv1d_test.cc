// Measures causal_conv1d on a backend against the float64 reference: widths, forms of state, packs,
// memory orders, dtypes and random configurations. Outputs may differ by a rounding, states, which
// are copies, by nothing; everything that may not be written is compared byte for byte.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "parity/conv_call.hpp"
#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "sluice/sluice.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr int kSeeds = 150;

using Configs = std::vector<ConvConfig>;

std::string config_name(const ::testing::TestParamInfo<ConvConfig>& info) {
  return info.param.name;
}

class CausalConv1d : public ::testing::TestWithParam<ConvConfig> {};

TEST_P(CausalConv1d, MatchesReference) {
  const ConvConfig& c = GetParam();
  const ConvResult truth = run_conv(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  EXPECT_EQ(truth.damage, "");
  const ConvResult found = run_conv(c, implementations_under_test().front());
  const Verdict verdict = judge_conv(c, found, truth);
  EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
}

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, CausalConv1d, ::testing::ValuesIn(configs), config_name)

Configs ladder() {
  Configs configs;
  for (const int64_t W : {2, 3, 4}) {
    for (const int64_t T : {0, 1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 130}) {
      ConvConfig c{.name = named("W", W, "_T", T), .T = T, .W = W};
      c.in_place = T % 2 == 1, c.D = 37;
      configs.push_back(c);
      c.name += "_channel_first", c.channel_first = c.columns_outside = true;
      configs.push_back(c);
    }
    for (const int64_t D : {1, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257}) {
      ConvConfig c{.name = named("W", W, "_D", D), .T = 9, .D = D, .W = W};
      c.columns_outside = D % 2 == 0;
      configs.push_back(c);
    }
  }
  return configs;
}
SLUICE_CONFIGS(Ladder, ladder());

/// Every form of state, in both memory orders, with more columns than needed too.
Configs states() {
  Configs configs;
  for (const int64_t W : {2, 3, 4}) {
    for (const bool outside : {false, true}) {
      for (const int64_t spare : {0, 1, 6}) {
        for (const int64_t T : {1, 2, 5, 12}) {
          const std::string tail =
              named("_W", W, "_spare", spare, "_T", T, outside ? "_columns_outside" : "");
          ConvConfig base{.name = "", .B = 3, .T = T, .W = W, .L = W - 1 + spare};
          base.columns_outside = outside;
          const auto with = [&](const std::string& name, auto change) {
            ConvConfig c = base;
            c.name = name + tail;
            change(c);
            configs.push_back(c);
          };
          with("shift", [](ConvConfig&) {});
          with("shift_in_place",
               [](ConvConfig& c) { c.in_place = true, c.slots = Slots::kRead, c.padded = {1}; });
          with("ring", [](ConvConfig& c) { c.form = SLUICE_CONV_STATE_RING; });
          with("ring_in_place", [](ConvConfig& c) {
            c.form = SLUICE_CONV_STATE_RING, c.in_place = true, c.fresh = {2};
            c.index = kI64;
          });
          if (base.L < W - 2 + T) continue;
          with("accepted", [](ConvConfig& c) { c.num_accepted = true; });
          with("accepted_in_place",
               [](ConvConfig& c) { c.num_accepted = c.in_place = true, c.slots = Slots::kRead; });
        }
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(States, states());

Configs options() {
  Configs configs;
  const auto with = [&](const std::string& name, auto change) {
    ConvConfig c{.name = name, .B = 4, .T = 6, .D = 40};
    change(c);
    configs.push_back(c);
  };
  for (const sluice_dtype x : {kF32, kBF16, kF16}) {
    for (const sluice_dtype other : {kF32, kBF16, kF16}) {
      with(named(dtype_name(x), "_with_", dtype_name(other)), [&](ConvConfig& c) {
        c.x = c.out = x, c.weight = c.bias = other;
        // States are copies of x: exact in float32 or in x's dtype.
        c.initial = c.final = same_dtype(other, kF32) ? kF32 : x;
      });
    }
    with(named(dtype_name(x), "_to_float32"), [&](ConvConfig& c) { c.x = c.initial = x; });
    with(named("from_float32_to_", dtype_name(x)), [&](ConvConfig& c) { c.out = c.final = x; });
  }
  with("no_bias", [](ConvConfig& c) { c.has_bias = false; });
  with("no_activation", [](ConvConfig& c) { c.activation = SLUICE_ACTIVATION_NONE; });
  with("no_states", [](ConvConfig& c) { c.has_initial = c.has_final = false; });
  with("no_initial", [](ConvConfig& c) { c.has_initial = false; });
  with("no_final", [](ConvConfig& c) { c.has_final = false; });
  with("fresh", [](ConvConfig& c) { c.fresh = {0, 3}, c.slots = Slots::kSeparate; });
  with("pads", [](ConvConfig& c) {
    c.padded = {0, 2}, c.padded_writes = {1}, c.slots = Slots::kSeparate, c.pad_below = 1;
  });
  const std::vector<std::vector<int64_t>> packs = {{1, 1, 1},    {0, 5, 0, 2}, {70, 1, 3},
                                                   {3, 2, 1, 0}, {},           {0, 0}};
  for (const std::vector<int64_t>& lengths : packs) {
    for (const auto form : {SLUICE_CONV_STATE_SHIFT, SLUICE_CONV_STATE_RING}) {
      with(named("pack", configs.size()), [&](ConvConfig& c) {
        c.packed = true, c.lengths = lengths, c.rows_past_end = 3, c.form = form;
        c.slots = Slots::kRead, c.L = 5, c.in_place = true;
        c.channel_first = form == SLUICE_CONV_STATE_RING;
      });
    }
  }
  with("empty_speculation", [](ConvConfig& c) {
    c.packed = c.num_accepted = true, c.lengths = {0, 2, 0, 3, 1, 0}, c.L = 8;
    c.slots = Slots::kSeparate;
  });
  ConvConfig many{.name = "4096_sequences", .D = 5, .packed = true};
  for (int64_t n = 0; n < 4096; ++n) many.lengths.push_back((n * 7 + n / 5) % 4);
  configs.push_back(many);
  return configs;
}
SLUICE_CONFIGS(Options, options());

/// One token of each sequence in the forms of models, which GPUs have a kernel for.
Configs updates() {
  Configs configs;
  for (const sluice_dtype type : {kBF16, kF16}) {
    for (const bool outside : {false, true}) {
      for (const int64_t L : {3, 4}) {
        const auto with = [&](const std::string& name, auto change) {
          ConvConfig c{.name = named(name, "_", dtype_name(type), outside ? "_outside_L" : "_L", L),
                       .B = 5,
                       .T = 1,
                       .D = 200,
                       .L = L};
          c.x = c.weight = c.bias = c.out = c.initial = c.final = type;
          c.columns_outside = outside;
          change(c);
          configs.push_back(c);
        };
        with("in_place", [](ConvConfig& c) { c.in_place = true, c.slots = Slots::kRead; });
        with("no_bias", [](ConvConfig& c) { c.has_bias = false, c.D = 8; });
        with("float32_weights", [](ConvConfig& c) { c.weight = c.bias = kF32; });
        with("float32_weights_alone", [](ConvConfig& c) {
          c.weight = kF32, c.has_bias = false, c.in_place = true, c.slots = Slots::kRead;
        });
        with("pads", [](ConvConfig& c) {
          c.padded = {0, 2}, c.padded_writes = {1}, c.fresh = {3}, c.slots = Slots::kSeparate;
          c.pad_below = 1, c.activation = SLUICE_ACTIVATION_NONE;
        });
        with("no_initial", [](ConvConfig& c) { c.has_initial = false; });
        with("no_final", [](ConvConfig& c) { c.has_final = false; });
        with("ring", [](ConvConfig& c) { c.form = SLUICE_CONV_STATE_RING; });
        with("ring_in_place", [](ConvConfig& c) {
          c.form = SLUICE_CONV_STATE_RING, c.in_place = true, c.slots = Slots::kRead;
        });
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(Updates, updates());

/// Prefill in the forms of models, likewise: sequences that begin, end and are empty anywhere in
/// eight tokens, with or without states, and more sequences than a warp looks at in one step.
/// @param first channel-first, in whole packs of tokens
void add_prefills(sluice_dtype type, int64_t L, bool first, Configs* configs) {
  const auto with = [&](const std::string& name, auto change) {
    ConvConfig c{.name = named(name, "_", dtype_name(type), "_L", L), .B = 3, .T = 21, .D = 72};
    c.x = c.weight = c.bias = c.out = c.initial = c.final = type;
    c.L = L, c.has_bias = false, c.has_initial = c.has_final = L > 0;
    change(c);
    if (first) {
      c.name += "_channel_first", c.channel_first = true;
      const int64_t rows = std::accumulate(c.lengths.begin(), c.lengths.end(), c.rows_past_end);
      c.T += -c.T & 7, c.rows_past_end += -rows & 7;
    }
    configs->push_back(c);
  };
  const std::vector<int64_t> lengths = {1, 2, 0, 3, 4, 24, 0, 5, 9, 1, 8, 0};
  with("batch", [](ConvConfig& c) { c.in_place = c.has_initial, c.D = 520; });
  with("short", [](ConvConfig& c) { c.T = 4, c.has_bias = true, c.columns_outside = true; });
  with("float32_weights", [](ConvConfig& c) { c.weight = c.bias = kF32, c.has_bias = true; });
  with("packed", [&](ConvConfig& c) { c.packed = true, c.lengths = lengths; });
  with("many", [](ConvConfig& c) {
    c.packed = true, c.rows_past_end = 3, c.index = kI64, c.columns_outside = true;
    for (int64_t n = 0; n < 70; ++n) c.lengths.push_back(n % 4);
  });
  if (L == 0) return;
  with("pads", [&](ConvConfig& c) {
    c.packed = c.in_place = true, c.lengths = lengths, c.slots = Slots::kRead;
    c.padded = {0, 5, 8}, c.fresh = {3, 6};
  });
  with("batch_pads", [](ConvConfig& c) {
    c.slots = Slots::kSeparate, c.padded = {1}, c.padded_writes = {2}, c.pad_below = 1;
  });
  with("no_final", [&](ConvConfig& c) {
    c.packed = true, c.lengths = lengths, c.has_final = false, c.columns_outside = true;
  });
  with("no_initial", [](ConvConfig& c) { c.has_initial = false; });
}

Configs prefills() {
  Configs configs;
  for (const sluice_dtype type : {kBF16, kF16}) {
    for (const int64_t L : {0, 3, 4}) {
      for (const bool first : {false, true}) add_prefills(type, L, first, &configs);
    }
  }
  return configs;
}
SLUICE_CONFIGS(Prefills, prefills());

ConvConfig draw(int seed) {
  Random random(static_cast<uint64_t>(seed) * 104729 + 3);
  Random* r = &random;
  ConvConfig c{.name = named("seed", seed), .seed = static_cast<uint64_t>(seed)};
  c.B = pick(r, 5), c.T = pick(r, 30), c.D = 1 + pick(r, 70), c.W = 2 + pick(r, 3);
  c.packed = chance(r, 2);
  int64_t longest = c.packed ? 0 : c.T;
  for (int64_t n = pick(r, 6); c.packed && n > 0; --n) {
    c.lengths.push_back(pick(r, 20));
    longest = std::max(longest, c.lengths.back());
  }
  c.rows_past_end = pick(r, 4);
  c.wild = !chance(r, 5), c.channel_first = chance(r, 2), c.columns_outside = chance(r, 2);
  const auto any_float = [&] { return one_of(r, {kF32, kBF16, kF16}); };
  c.x = any_float(), c.weight = any_float(), c.bias = any_float(), c.out = any_float();
  c.initial = any_float(), c.final = any_float(), c.index = one_of(r, {kI32, kI64});
  c.has_bias = chance(r, 2);
  c.activation = one_of(r, {SLUICE_ACTIVATION_SILU, SLUICE_ACTIVATION_NONE});
  c.has_initial = !chance(r, 4), c.has_final = !chance(r, 4);
  c.in_place = c.has_initial && c.has_final && chance(r, 2);
  c.form = one_of(r, {SLUICE_CONV_STATE_SHIFT, SLUICE_CONV_STATE_RING});
  c.L = c.W - 1 + pick(r, 8);
  c.num_accepted = c.form == SLUICE_CONV_STATE_SHIFT && c.has_initial && chance(r, 2);
  if (c.num_accepted) c.L = std::max(c.L, c.W - 2 + std::max(longest, c.T) + pick(r, 3));
  c.slots = one_of(r, {Slots::kNone, Slots::kRead, Slots::kSeparate, Slots::kShared});
  c.pad_below = c.slots == Slots::kNone ? 0 : pick(r, 2);
  for (int64_t n = 0; n < c.sequences(); ++n) {
    if (c.slots != Slots::kNone && chance(r, 5)) c.padded.push_back(n);
    if (c.slots == Slots::kSeparate && chance(r, 5)) c.padded_writes.push_back(n);
    if (chance(r, 5)) c.fresh.push_back(n);
  }
  return c;
}

Configs random_configs() {
  Configs configs;
  for (int seed = 0; seed < kSeeds; ++seed) configs.push_back(draw(seed));
  return configs;
}
SLUICE_CONFIGS(Random, random_configs());

/// WHY all bits: rounding up to 16 bits carries such a NaN into the sign.
TEST(CausalConv1dNan, OfAllBitsStaysOne) {
  constexpr int64_t kChannels = 40;
  std::vector<float> x(kChannels, std::bit_cast<float>(0x7fffffffU)), weight(2 * kChannels, 1.0f);
  std::vector<uint16_t> out(kChannels);
  sluice_causal_conv1d_args args{};
  args.struct_size = sizeof args;
  args.x = TensorView(x.data(), {1, 1, kChannels});
  args.weight = TensorView(weight.data(), {kChannels, 2});
  args.out = TensorView(out.data(), kBFloat16, {1, 1, kChannels});
  args.activation = SLUICE_ACTIVATION_NONE;
  args.implementation = implementations_under_test().front();
  const CallOutcome call = call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args);
  ASSERT_EQ(call.code, SLUICE_OK) << call.message;
  for (const uint16_t bits : out) EXPECT_GT(bits & 0x7fff, 0x7f80) << std::hex << bits;
}

}  // namespace
}  // namespace sluice::check
