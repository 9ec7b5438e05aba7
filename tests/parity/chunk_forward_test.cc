// Measures how far chunk_forward is from the float64 recurrence, on every implementation that runs
// on the CPU, for every option of sluice.h. A table of cases, each run on poisoned memory; errors
// are judged over the tensor, the worst head and the worst 64-token window.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Cases = std::vector<GdnCase>;

std::string case_name(const ::testing::TestParamInfo<GdnCase>& info) { return info.param.name; }

/// Rows past the last packed sequence keep the poison.
bool trailing_rows_untouched(const GdnCase& c, const Array& o) {
  if (c.lengths.empty()) return true;
  const int64_t row = c.HV * c.V;
  for (auto i = static_cast<size_t>(c.cu_seqlens().back() * row); i < o.values.size(); ++i) {
    if (!std::isnan(o.values[i])) return false;
  }
  return true;
}

class ChunkForward : public ::testing::TestWithParam<GdnCase> {};

TEST_P(ChunkForward, MatchesRecurrence) {
  const GdnCase& c = GetParam();
  const GdnInputs inputs = make_inputs(c);
  const GdnOutputs truth = truth_of(c, inputs);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  EXPECT_TRUE(trailing_rows_untouched(c, truth.o));
  for (const sluice_implementation implementation : implementations_under_test()) {
    const GdnOutputs outputs = run_chunk_forward(c, inputs, {.implementation = implementation});
    ASSERT_EQ(outputs.code, SLUICE_OK) << outputs.message;
    const Verdict verdict = judge_run(c, inputs, outputs, truth);
    EXPECT_TRUE(verdict.pass) << outputs.kernel << "\n" << verdict.line;
    EXPECT_TRUE(trailing_rows_untouched(c, outputs.o)) << outputs.kernel;
  }
}

#define SLUICE_CASES(name, cases) \
  INSTANTIATE_TEST_SUITE_P(name, ChunkForward, ::testing::ValuesIn(cases), case_name)

/// Lengths around every chunk border, one and two key dimensions.
Cases ladder() {
  Cases cases;
  for (const int64_t T : {0,  1,  2,  15, 16, 17, 31,  32,  33,  47,  48,  49,  63,
                          64, 65, 75, 95, 96, 97, 127, 128, 129, 191, 192, 193, 367}) {
    cases.push_back({.name = named("T", T), .B = 2, .T = T, .H = 1, .HV = 2});
  }
  for (const int64_t T : {1, 17, 64, 129, 500}) {
    cases.push_back({.name = named("K128_T", T), .T = T, .K = 128, .V = 128});
  }
  for (const int64_t T : {1, 33, 65, 130}) {
    cases.push_back({.name = named("unlike_T", T), .B = 2, .T = T, .K = 60, .V = 100});
  }
  for (const int64_t T : {447, 512, 640, 1000, 1024, 1500, 1920, 2048}) {
    cases.push_back({.name = named("long_T", T), .T = T, .H = 1, .HV = 2, .K = 32, .V = 32});
  }
  return cases;
}
SLUICE_CASES(Ladder, ladder());

GdnCase packed(std::string name, std::vector<int64_t> lengths, int64_t rows_past_end = 0) {
  GdnCase c{.name = std::move(name), .H = 1, .HV = 2, .K = 32, .V = 32};
  c.T = rows_past_end;
  for (const int64_t length : lengths) c.T += length;
  c.lengths = std::move(lengths);
  return c;
}

/// Packed sequences: every special length first, in the middle and last; the packs of the peers.
Cases packs() {
  Cases cases;
  for (const int64_t length : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    const int64_t n = length;
    cases.push_back(packed(named("first_", n), {length, 40, 70}));
    cases.push_back(packed(named("middle_", n), {40, length, 70}, 3));
    cases.push_back(packed(named("last_", n), {40, 70, length}));
  }
  cases.push_back(packed("p256_256", {256, 256}));
  cases.push_back(packed("p64_128_512", {64, 128, 512}));
  cases.push_back(packed("p96_0_300", {96, 0, 300}));
  cases.push_back(packed("p192_64", {192, 64}, 64));
  cases.push_back(packed("p511_501", {511, 501}));
  cases.push_back(packed("p31_to_500", {31, 62, 30, 30, 27, 350}));
  cases.push_back(packed("p11_short", {33, 1, 20, 7, 0, 32, 31, 2, 16, 15, 17}));
  cases.push_back(packed("p410_to_1584", {410, 431, 294, 991, 386, 1584}));
  cases.push_back(packed("p15_to_900", {15, 85, 200, 900, 800}));
  std::vector<int64_t> twenty;
  for (int64_t n = 0; n < 20; ++n) twenty.push_back((n * 197 + 31) % 513);
  cases.push_back(packed("p20_up_to_512", twenty));
  cases.push_back(packed("all_empty", {0, 0, 0}, 5));
  cases.push_back(packed("no_sequence_rows_only", {}, 5));
  cases.back().lengths = {};
  cases.back().T = 0;
  cases.push_back(packed("one", {77}));
  GdnCase int32 = packed("int32_offsets", {20, 0, 65, 3}, 2);
  int32.index_dtype = kI32;
  cases.push_back(int32);
  return cases;
}
SLUICE_CASES(Packs, packs());

/// Head counts, head maps and head dimensions.
Cases heads() {
  struct Heads {
    int64_t H, HV;
  };
  Cases cases;
  for (const auto [H, HV] : {Heads{1, 1},
                             {3, 3},
                             {1, 2},
                             {2, 4},
                             {2, 6},
                             {2, 8},
                             {1, 8},
                             {4, 4},
                             {4, 16},
                             {3, 12},
                             {1, 5},
                             {1, 3},
                             {8, 16},
                             {4, 12},
                             {1, 4}}) {
    for (const bool cyclic : {false, true}) {
      GdnCase c{.name = named("H", H, "_HV", HV)};
      if (cyclic) c.name += "_cyclic", c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
      c.H = H, c.HV = HV, c.T = 70, c.K = 32, c.V = 32;
      c.gates = GateProfile::kMixed;
      cases.push_back(c);
    }
  }
  GdnCase wide{.name = "H16_HV48", .T = 20, .H = 16, .HV = 48, .K = 16, .V = 16};
  cases.push_back(wide);
  struct Dims {
    int64_t K, V;
  };
  for (const auto [K, V] : {Dims{1, 1},
                            {1, 7},
                            {7, 1},
                            {7, 7},
                            {8, 24},
                            {15, 17},
                            {16, 16},
                            {33, 31},
                            {60, 60},
                            {100, 100},
                            {60, 100},
                            {64, 128},
                            {128, 64},
                            {96, 48},
                            {192, 192},
                            {256, 256},
                            {256, 7},
                            {5, 256},
                            {127, 129}}) {
    GdnCase c{.name = named("K", K, "_V", V)};
    c.K = K, c.V = V, c.T = 67, c.H = 1, c.HV = 2;
    cases.push_back(c);
    c.name += "_vk", c.state_layout = SLUICE_STATE_VK, c.in_place = true;
    cases.push_back(c);
  }
  return cases;
}
SLUICE_CASES(Heads, heads());

/// Element types of tokens, gates and states, with both state layouts.
Cases dtypes() {
  Cases cases;
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype state : {kF32, kBF16, kF16}) {
      for (const sluice_dtype gate : {kF32, kBF16, kF16}) {
        GdnCase c{.name = named(dtype_name(io), "_state_", dtype_name(state), "_gate_",
                                dtype_name(gate))};
        c.io = io, c.state_dtype = state, c.gate_dtype = gate;
        c.T = 150, c.H = 1, c.HV = 2, c.K = 64, c.V = 64;
        c.state_layout = same_dtype(gate, kF32) ? SLUICE_STATE_KV : SLUICE_STATE_VK;
        cases.push_back(c);
      }
    }
    for (const KeyProfile keys : {KeyProfile::kSiluLike, KeyProfile::kCos75, KeyProfile::kCos90}) {
      for (const GateProfile gates : {GateProfile::kSlow, GateProfile::kStrong}) {
        GdnCase c{.name = named(dtype_name(io), "_keys", static_cast<int>(keys), "_gates",
                                static_cast<int>(gates))};
        c.io = io, c.keys = keys, c.gates = gates;
        c.T = 200, c.H = 1, c.HV = 2, c.K = 128, c.V = 64;
        cases.push_back(c);
      }
    }
  }
  return cases;
}
SLUICE_CASES(Dtypes, dtypes());

/// How gates, write strengths, q and k, and the scale are given.
Cases options() {
  const GdnCase base{.name = "", .B = 2, .T = 75, .H = 2, .HV = 4, .K = 32, .V = 48};
  Cases cases;
  const auto add = [&](const std::string& name, auto change) {
    GdnCase c = base;
    c.name = name;
    change(c);
    cases.push_back(c);
  };
  for (const GateProfile gates :
       {GateProfile::kSlow, GateProfile::kStrong, GateProfile::kFlashQla, GateProfile::kMixed}) {
    const int n = static_cast<int>(gates);
    add(named("linear_gates", n),
        [&](GdnCase& c) { c.gates = gates, c.options.gate_space = SLUICE_GATE_LINEAR; });
  }
  for (const GateProfile gates :
       {GateProfile::kSlow, GateProfile::kStrong, GateProfile::kModelLike}) {
    const int n = static_cast<int>(gates);
    add(named("raw_gates", n),
        [&](GdnCase& c) { c.gates = gates, c.options.gate_space = SLUICE_GATE_RAW; });
    add(named("bounded_gates", n), [&](GdnCase& c) {
      c.gates = gates, c.options.gate_space = SLUICE_GATE_RAW_BOUNDED,
      c.options.gate_lower_bound = -5.0;
    });
  }
  add("no_gates", [](GdnCase& c) { c.gates = GateProfile::kNone; });
  add("no_beta", [](GdnCase& c) { c.betas = BetaProfile::kAbsent; });
  add("no_gates_no_beta",
      [](GdnCase& c) { c.gates = GateProfile::kNone, c.betas = BetaProfile::kAbsent; });
  add("no_initial_state", [](GdnCase& c) { c.initial = StateProfile::kNone; });
  add("beta_logits", [](GdnCase& c) { c.options.beta_space = SLUICE_BETA_LOGIT; });
  add("negative_eigenvalues",
      [](GdnCase& c) { c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE; });
  add("negative_eigenvalues_logits", [](GdnCase& c) {
    c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.options.beta_space = SLUICE_BETA_LOGIT;
  });
  add("negative_eigenvalues_no_beta", [](GdnCase& c) {
    c.options.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.betas = BetaProfile::kAbsent;
  });
  add("l2_norm", [](GdnCase& c) { c.options.qk_norm = SLUICE_QK_NORM_L2; });
  add("l2_norm_zero_keys",
      [](GdnCase& c) { c.options.qk_norm = SLUICE_QK_NORM_L2, c.keys = KeyProfile::kZero; });
  add("l2_norm_bfloat16", [](GdnCase& c) { c.options.qk_norm = SLUICE_QK_NORM_L2, c.io = kBF16; });
  add("l2_norm_cyclic", [](GdnCase& c) {
    c.options.qk_norm = SLUICE_QK_NORM_L2, c.options.head_map = SLUICE_HEAD_MAP_CYCLIC;
  });
  for (const double scale : {0.0, 1.0, -0.5, 37.0}) {
    add(named("scale", cases.size()), [&](GdnCase& c) { c.options.scale = scale; });
  }
  add("scale_1_l2_norm",
      [](GdnCase& c) { c.options.scale = 1.0, c.options.qk_norm = SLUICE_QK_NORM_L2; });
  for (const GateProfile gates :
       {GateProfile::kNone, GateProfile::kSlow, GateProfile::kStrong, GateProfile::kResets}) {
    const int n = static_cast<int>(gates);
    add(named("linear_attention", n), [&](GdnCase& c) {
      c.options.rule = SLUICE_RULE_LINEAR_ATTENTION, c.gates = gates, c.T = 130;
    });
  }
  add("linear_attention_bfloat16",
      [](GdnCase& c) { c.options.rule = SLUICE_RULE_LINEAR_ATTENTION, c.io = kBF16, c.T = 130; });
  add("qwen3_next_like", [](GdnCase& c) {
    c.gates = GateProfile::kModelLike, c.options.gate_space = SLUICE_GATE_RAW;
    c.options.beta_space = SLUICE_BETA_LOGIT, c.options.qk_norm = SLUICE_QK_NORM_L2;
    c.keys = KeyProfile::kSiluLike, c.io = kBF16, c.K = 128, c.V = 128, c.T = 130, c.B = 1;
  });
  return cases;
}
SLUICE_CASES(Options, options());

/// Where tokens and states lie: strides, slots, pads, masks, checkpoints.
Cases memory() {
  GdnCase base{.name = "", .B = 3, .T = 66, .H = 2, .HV = 4, .K = 32, .V = 40};
  Cases cases;
  const auto add = [&](const std::string& name, auto change) {
    for (const bool is_packed : {false, true}) {
      GdnCase c = base;
      c.name = named(name, is_packed ? "_packed" : "");
      if (is_packed) c.B = 1, c.lengths = {17, 0, 130}, c.T = 150;
      change(c);
      cases.push_back(c);
    }
  };
  for (const sluice_dtype io : {kF32, kBF16}) {
    const std::string n = dtype_name(io);
    add(named("head_first_", n), [&](GdnCase& c) { c.tokens = Placement::kHeadFirst, c.io = io; });
    add(named("fused_row_", n), [&](GdnCase& c) { c.tokens = Placement::kFusedRow, c.io = io; });
  }
  for (const sluice_state_layout layout : {SLUICE_STATE_KV, SLUICE_STATE_VK}) {
    const std::string n = layout == SLUICE_STATE_KV ? "_kv" : "_vk";
    add(named("padded_slots", n), [&](GdnCase& c) {
      c.pool = Placement::kPaddedSlots, c.slots = true, c.state_layout = layout;
    });
    add(named("in_place", n), [&](GdnCase& c) {
      c.in_place = true, c.slots = true, c.state_layout = layout;
      c.pool = Placement::kPaddedSlots;
    });
    add(named("pads", n),
        [&](GdnCase& c) { c.slots = true, c.padded = {0, 2}, c.state_layout = layout; });
    add(named("mask_over_nan", n),
        [&](GdnCase& c) { c.no_initial = {0, 2}, c.slots = true, c.state_layout = layout; });
    add(named("mask_in_place", n),
        [&](GdnCase& c) { c.no_initial = {2}, c.in_place = true, c.state_layout = layout; });
    add(named("checkpoints", n), [&](GdnCase& c) {
      c.checkpoint_every = 64, c.state_layout = layout;
      c.T = c.lengths.empty() ? 200 : c.T;
    });
    add(named("checkpoints_bfloat16", n), [&](GdnCase& c) {
      c.checkpoint_every = 128, c.state_layout = layout, c.io = kBF16;
      c.T = c.lengths.empty() ? 257 : c.T;
    });
  }
  add("int32_slots", [](GdnCase& c) { c.slots = true, c.index_dtype = kI32; });
  return cases;
}
SLUICE_CASES(Memory, memory());

}  // namespace
}  // namespace sluice::check
