// Measures how far recurrent_step is from the float64 recurrence on the CPU, for every option of
// sluice.h: token counts, packs, slot tables, speculation, state writes, dtypes. Each call runs on
// poisoned memory, and everything that it may not write is compared byte for byte afterwards.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parity/delta_call.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Configs = std::vector<DeltaConfig>;

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}

class RecurrentStep : public ::testing::TestWithParam<DeltaConfig> {};

TEST_P(RecurrentStep, MatchesRecurrence) {
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
  INSTANTIATE_TEST_SUITE_P(name, RecurrentStep, ::testing::ValuesIn(configs), config_name)

Configs token_counts() {
  Configs configs;
  for (int64_t T = 0; T <= 16; ++T) {
    for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
      DeltaConfig c{.name = named("T", T, layout == SLUICE_STATE_KV ? "_kv" : "_vk")};
      c.T = T, c.H = 2, c.HV = 4, c.K = 64, c.V = 48;
      c.layout = layout, c.has_final = T % 2 == 0;
      configs.push_back(c);
    }
  }
  int pack = 0;
  const std::vector<std::vector<int64_t>> packs = {
      {1, 1, 1}, {0, 3, 16, 0, 1}, {5, 0, 2}, {0, 0}, {}, {1, 2, 3, 4, 5, 6, 7, 8}};
  for (const std::vector<int64_t>& lengths : packs) {
    DeltaConfig c{.name = named("pack", pack++)};
    c.packed = true, c.lengths = lengths, c.rows_past_end = pack % 3;
    c.index = pack % 2 == 0 ? kI32 : kI64;
    configs.push_back(c);
  }
  DeltaConfig batch{.name = "batch_of_300", .B = 300, .T = 1, .H = 2, .HV = 4, .K = 16, .V = 16};
  configs.push_back(batch);
  // WHY 20: gates of single tokens are computed 16 heads at a time.
  configs.push_back({.name = "heads_20", .B = 2, .T = 1, .H = 4, .HV = 20, .K = 16, .V = 16});
  return configs;
}
SLUICE_CONFIGS(Tokens, token_counts());

/// Single tokens of models, of so many heads that each multiprocessor of a GPU has a few.
Configs a_few_heads_a_multiprocessor() {
  Configs configs;
  for (const sluice_dtype state : {kF32, kBF16}) {
    DeltaConfig c{.name = named("single_288_heads_", dtype_name(state))};
    c.B = 9, c.T = 1, c.H = 16, c.HV = 32, c.K = c.V = 128;
    c.io = c.o = kBF16, c.initial = c.final = state, c.qk_norm = SLUICE_QK_NORM_L2;
    c.slots = Slots::kSeparate, c.padded = {3}, c.fresh = {5};
    configs.push_back(c);
  }
  return configs;
}
SLUICE_CONFIGS(Models, a_few_heads_a_multiprocessor());

Configs sizes() {
  Configs configs;
  struct Sizes {
    int64_t H, HV, K, V;
  };
  for (const auto [H, HV, K, V] : {Sizes{1, 1, 128, 128},
                                   {3, 3, 64, 64},
                                   {2, 6, 60, 100},
                                   {2, 8, 100, 60},
                                   {1, 8, 1, 7},
                                   {4, 16, 7, 1},
                                   {1, 2, 256, 256},
                                   {1, 2, 64, 128},
                                   {2, 2, 127, 33},
                                   {1, 3, 24, 8},
                                   {16, 32, 16, 16},
                                   {1, 1, 1, 1}}) {
    for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
      for (const auto map : {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC}) {
        DeltaConfig c{.name = named("H", H, "_HV", HV, "_K", K, "_V", V,
                                    layout == SLUICE_STATE_KV ? "_kv" : "_vk",
                                    map == SLUICE_HEAD_MAP_BLOCK ? "" : "_cyclic")};
        c.H = H, c.HV = HV, c.K = K, c.V = V, c.T = 2;
        c.layout = layout, c.head_map = map, c.gates = GateProfile::kMixed;
        c.qk_norm = map == SLUICE_HEAD_MAP_BLOCK ? SLUICE_QK_NORM_L2 : SLUICE_QK_NORM_NONE;
        configs.push_back(c);
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(Sizes, sizes());

Configs dtypes() {
  Configs configs;
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype initial : {kF32, kBF16, kF16}) {
      for (const sluice_dtype final : {kF32, kBF16, kF16}) {
        for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
          DeltaConfig c{.name =
                            named(dtype_name(io), "_from_", dtype_name(initial), "_to_",
                                  dtype_name(final), layout == SLUICE_STATE_KV ? "_kv" : "_vk")};
          c.io = c.o = io, c.gate = final, c.beta = initial;
          c.initial = initial, c.final = final, c.layout = layout;
          c.K = 64, c.V = 40;
          configs.push_back(c);
        }
      }
    }
    DeltaConfig c{.name = named(dtype_name(io), "_to_float32_output")};
    c.io = io, c.o = kF32;
    configs.push_back(c);
  }
  return configs;
}
SLUICE_CONFIGS(Dtypes, dtypes());

/// Adds one config with `change` applied to `base`.
template <class Change>
void add(Configs* configs, DeltaConfig base, const std::string& name, Change change) {
  base.name = name;
  change(base);
  configs->push_back(base);
}

Configs options() {
  const DeltaConfig base{.name = "", .B = 3, .T = 4, .H = 2, .HV = 4, .K = 48, .V = 32};
  Configs configs;
  const auto with = [&](const std::string& name, auto change) {
    add(&configs, base, name, change);
  };
  with("no_gate", [](DeltaConfig& c) { c.gates = GateProfile::kNone; });
  with("no_beta", [](DeltaConfig& c) { c.betas = BetaProfile::kAbsent; });
  with("linear_gate",
       [](DeltaConfig& c) { c.gate_space = SLUICE_GATE_LINEAR, c.gates = GateProfile::kStrong; });
  with("raw_gate", [](DeltaConfig& c) { c.gate_space = SLUICE_GATE_RAW; });
  with("raw_gate_bfloat16",
       [](DeltaConfig& c) { c.gate_space = SLUICE_GATE_RAW, c.per_head = kBF16, c.gate = kF16; });
  with("bounded_gate", [](DeltaConfig& c) {
    c.gate_space = SLUICE_GATE_RAW_BOUNDED, c.gate_lower_bound = -5.0, c.per_head = kBF16;
  });
  with("bounded_gate_alone", [](DeltaConfig& c) {
    c.gate_space = SLUICE_GATE_RAW_BOUNDED, c.gate_lower_bound = -0.5, c.T = 1;
    c.has_gate_parameters = false;
  });
  with("strong_gate", [](DeltaConfig& c) { c.gates = GateProfile::kStrong; });
  with("resets", [](DeltaConfig& c) { c.gates = GateProfile::kResets, c.T = 16; });
  with("minus_infinity", [](DeltaConfig& c) {
    c.gates = GateProfile::kMinusInfinity, c.packed = true, c.lengths = {16, 16, 16};
  });
  with("beta_logit", [](DeltaConfig& c) { c.beta_space = SLUICE_BETA_LOGIT; });
  with("negative_eigenvalues", [](DeltaConfig& c) { c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE; });
  with("negative_eigenvalues_logit", [](DeltaConfig& c) {
    c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.beta_space = SLUICE_BETA_LOGIT;
  });
  with("l2_norm", [](DeltaConfig& c) { c.qk_norm = SLUICE_QK_NORM_L2; });
  with("l2_norm_large_eps",
       [](DeltaConfig& c) { c.qk_norm = SLUICE_QK_NORM_L2, c.l2norm_eps = 10.0; });
  with("l2_norm_zero_keys",
       [](DeltaConfig& c) { c.qk_norm = SLUICE_QK_NORM_L2, c.keys = KeyProfile::kZero; });
  with("scale_0", [](DeltaConfig& c) { c.scale = 0.0; });
  with("scale_1", [](DeltaConfig& c) { c.scale = 1.0; });
  with("scale_minus_3", [](DeltaConfig& c) { c.scale = -3.0, c.qk_norm = SLUICE_QK_NORM_L2; });
  with("linear_attention", [](DeltaConfig& c) { c.rule = SLUICE_RULE_LINEAR_ATTENTION; });
  with("linear_attention_no_gate",
       [](DeltaConfig& c) { c.rule = SLUICE_RULE_LINEAR_ATTENTION, c.gates = GateProfile::kNone; });
  with("random_strides", [](DeltaConfig& c) { c.wild = true, c.slots = Slots::kRead; });
  return configs;
}
SLUICE_CONFIGS(Options, options());

/// One token on whole heads of 128 x 128, which a GPU has a kernel of its own for.
Configs one_token() {
  Configs configs;
  for (const sluice_dtype io : {kBF16, kF16}) {
    for (const sluice_dtype state : {kF32, io}) {
      const std::string tail = named("_", dtype_name(io), "_", dtype_name(state));
      DeltaConfig base{.name = "", .B = 3, .T = 1, .H = 2, .HV = 4, .K = 128, .V = 128};
      base.io = base.o = base.gate = io, base.initial = base.final = state;
      base.gate_space = SLUICE_GATE_RAW, base.beta_space = SLUICE_BETA_LOGIT;
      base.qk_norm = SLUICE_QK_NORM_L2, base.has_final = false, base.slots = Slots::kRead;
      const auto with = [&](const std::string& name, auto change) {
        add(&configs, base, name + tail, change);
      };
      with("model", [](DeltaConfig&) {});
      with("r3_cyclic", [](DeltaConfig& c) { c.HV = 6, c.head_map = SLUICE_HEAD_MAP_CYCLIC; });
      with("log_gate_no_norm", [](DeltaConfig& c) {
        c.gate_space = SLUICE_GATE_LOG, c.qk_norm = SLUICE_QK_NORM_NONE, c.gate = kF32;
      });
      with("linear_gate_values", [](DeltaConfig& c) {
        c.gate_space = SLUICE_GATE_LINEAR, c.beta_space = SLUICE_BETA_VALUE, c.beta = kBF16;
      });
      with("no_gate_no_beta", [](DeltaConfig& c) {
        c.gates = GateProfile::kNone, c.betas = BetaProfile::kAbsent;
        c.gate_space = SLUICE_GATE_LOG, c.beta_space = SLUICE_BETA_VALUE;
      });
      with("linear_attention", [](DeltaConfig& c) {
        c.rule = SLUICE_RULE_LINEAR_ATTENTION, c.beta_space = SLUICE_BETA_VALUE;
      });
      with("dense_two_pools", [](DeltaConfig& c) { c.slots = Slots::kNone, c.has_final = true; });
      with("separate_int64", [](DeltaConfig& c) {
        c.slots = Slots::kSeparate, c.index = kI64, c.padded = {1}, c.padded_writes = {0};
      });
      with("null_slot", [](DeltaConfig& c) { c.padded = {0, 2}, c.pad_below = 1; });
      with("fresh_over_nan", [](DeltaConfig& c) { c.fresh = {0, 2}; });
      with("per_token", [](DeltaConfig& c) {
        c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.slots = Slots::kShared, c.columns = 1;
      });
      with("none", [](DeltaConfig& c) { c.state_writes = SLUICE_STATE_WRITE_NONE; });
      with("random_strides", [](DeltaConfig& c) { c.wild = true; });
    }
  }
  return configs;
}
SLUICE_CONFIGS(OneToken, one_token());

/// Slots, pads and masks; in place, and from one pool to another.
Configs slots() {
  Configs configs;
  for (const bool has_final : {false, true}) {
    for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
      const std::string tail =
          named(has_final ? "_two_pools" : "_in_place", layout == SLUICE_STATE_KV ? "" : "_vk");
      DeltaConfig base{.name = "", .B = 5, .T = 2, .H = 1, .HV = 3, .K = 24, .V = 40};
      base.has_final = has_final, base.layout = layout, base.wild = true;
      const auto with = [&](const std::string& name, auto change) {
        add(&configs, base, name + tail, change);
      };
      with("dense", [](DeltaConfig&) {});
      with("read", [](DeltaConfig& c) { c.slots = Slots::kRead; });
      with("separate", [](DeltaConfig& c) { c.slots = Slots::kSeparate, c.index = kI64; });
      with("shared", [](DeltaConfig& c) { c.slots = Slots::kShared; });
      with("same_view",
           [](DeltaConfig& c) { c.slots = Slots::kSeparate, c.has_final = c.in_place = true; });
      with("pads", [](DeltaConfig& c) { c.slots = Slots::kRead, c.padded = {0, 3, 4}; });
      with("null_slot",
           [](DeltaConfig& c) { c.slots = Slots::kRead, c.padded = {1}, c.pad_below = 1; });
      with("padded_writes", [](DeltaConfig& c) {
        c.slots = Slots::kSeparate, c.padded = {2}, c.padded_writes = {0, 4};
      });
      with("all_pads",
           [](DeltaConfig& c) { c.slots = Slots::kSeparate, c.padded = {0, 1, 2, 3, 4}; });
      with("fresh_over_nan", [](DeltaConfig& c) { c.slots = Slots::kRead, c.fresh = {1, 4}; });
      with("fresh_without_slots", [](DeltaConfig& c) { c.fresh = {0, 2}; });
      with("packed", [](DeltaConfig& c) {
        c.packed = true, c.lengths = {0, 3, 16, 0, 1}, c.slots = Slots::kSeparate;
        c.padded = {2, 3}, c.rows_past_end = 2;
      });
      with("columns", [](DeltaConfig& c) { c.slots = Slots::kSeparate, c.columns = 3; });
    }
  }
  return configs;
}
SLUICE_CONFIGS(Slots, slots());

/// At most one token a sequence in packed rows, on heads of models: engines' decode batches.
Configs packed_single_tokens() {
  Configs configs;
  for (const auto layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    for (const sluice_dtype state : {kF32, kBF16}) {
      DeltaConfig base{.name = "", .B = 2, .T = 1, .H = 2, .HV = 4, .K = 128, .V = 128};
      base.layout = layout, base.io = base.o = base.gate = base.beta = kBF16;
      base.initial = base.final = state, base.gate_space = SLUICE_GATE_RAW;
      base.packed = true, base.lengths = {1, 0, 1, 1}, base.most_tokens = 1;
      base.slots = Slots::kSeparate;
      const auto with = [&](const std::string& name, auto change) {
        add(&configs, base,
            named(name, layout == SLUICE_STATE_KV ? "_kv_" : "_vk_", dtype_name(state)), change);
      };
      with("plain", [](DeltaConfig&) {});
      with("pads", [](DeltaConfig& c) { c.padded = {0, 1}, c.rows_past_end = 3; });
      with("keys", [](DeltaConfig& c) { c.key_gates = true, c.gates = GateProfile::kFlashQla; });
    }
  }
  return configs;
}
SLUICE_CONFIGS(PackedSingleTokens, packed_single_tokens());

/// Start states by num_accepted; states per token, or none.
Configs speculation() {
  Configs configs;
  for (const int64_t T : {1, 2, 3, 8, 16}) {
    DeltaConfig base{.name = "", .B = 4, .T = T, .H = 1, .HV = 2, .K = 32, .V = 24};
    base.slots = Slots::kShared, base.columns = T, base.has_final = false;
    const auto with = [&](const std::string& name, auto change) {
      add(&configs, base, named(name, "_T", T), change);
    };
    with("per_token", [](DeltaConfig& c) { c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN; });
    with("accepted", [T](DeltaConfig& c) { c.num_accepted = true, c.accepted = {0, 1, T, T + 5}; });
    with("accepted_per_token", [T](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.num_accepted = true;
      c.accepted = {T, 0, 1, (T + 1) / 2};
    });
    with("accepted_per_token_pads", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.num_accepted = true;
      c.padded = {1, 3}, c.pad_below = 1, c.wild = true, c.index = kI64;
    });
    with("per_token_separate", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.slots = Slots::kSeparate;
      c.padded_writes = {2}, c.num_accepted = true;
    });
    with("per_token_other_pool", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.has_final = true, c.final = kBF16;
    });
    with("per_token_fresh", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.fresh = {0, 3};
      c.layout = SLUICE_STATE_VK;
    });
    with("per_token_packed", [T](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, c.num_accepted = true;
      c.packed = true, c.lengths = {T, 0, (T + 1) / 2, 1}, c.columns = 16;
    });
    with("accepted_last", [](DeltaConfig& c) {
      c.num_accepted = true, c.slots = Slots::kSeparate, c.has_final = true;
    });
    with("none", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_NONE, c.slots = Slots::kRead, c.num_accepted = true;
    });
    with("none_without_states", [](DeltaConfig& c) {
      c.state_writes = SLUICE_STATE_WRITE_NONE, c.slots = Slots::kNone, c.columns = 0;
      c.has_initial = false;
    });
  }
  return configs;
}
SLUICE_CONFIGS(Speculation, speculation());

}  // namespace
}  // namespace sluice::check
