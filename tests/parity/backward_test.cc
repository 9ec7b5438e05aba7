// Measures chunk_backward against the float64 reference. Unwritten memory is NaN and watched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "parity/backward_call.hpp"
#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// The configurations of one rule: one test, so that a hundred calls are not a hundred processes.
struct Group {
  std::string name;
  std::vector<BackwardConfig> configs;
};
void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }
std::string group_name(const ::testing::TestParamInfo<Group>& info) { return info.param.name; }

class ChunkBackward : public ::testing::TestWithParam<Group> {};

TEST_P(ChunkBackward, MatchesReference) {
  for (const BackwardConfig& c : GetParam().configs) {
    const BackwardResult truth = run_backward(c, SLUICE_IMPL_REFERENCE, kF32);
    const BackwardResult found = run_backward(c, implementations_under_test().front());
    const Verdict verdict = judge_backward(c, found, truth);
    EXPECT_TRUE(verdict.pass) << c.name << " " << found.kernel << "\n" << verdict.line;
  }
}

/// Both rules with every change, named by both.
class Both {
 public:
  template <class Change>
  void add(const std::string& suffix, Change change) {
    for (Group& group : groups) {
      BackwardConfig c;
      c.rule = group.name == "delta" ? SLUICE_RULE_GATED_DELTA : SLUICE_RULE_LINEAR_ATTENTION;
      c.name = group.name + "_" + suffix;
      c.seed = 100 * group.configs.size() + 1;
      change(&c);
      group.configs.push_back(c);
    }
  }
  std::vector<Group> groups = {{"delta", {}}, {"linear", {}}};
};

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, ChunkBackward, ::testing::ValuesIn(configs), group_name)

std::vector<Group> lengths() {
  Both both;
  for (const int64_t T : {0, 1, 2, 63, 64, 65, 127, 128, 129, 200}) {
    both.add(named("T", T), [&](BackwardConfig* c) { c->T = T, c->B = 2; });
  }
  return both.groups;
}
SLUICE_CONFIGS(Lengths, lengths());

std::vector<Group> packs() {
  const std::vector<std::vector<int64_t>> kPacks = {
      {129, 65}, {1, 17, 64, 63, 130}, {0, 5, 0, 64, 0}, {0}};
  Both both;
  for (size_t i = 0; i < kPacks.size(); ++i) {
    both.add(named("pack", i), [&](BackwardConfig* c) {
      c->lengths = kPacks[i];
      c->T = 3;  // rows past the end
      for (const int64_t length : kPacks[i]) c->T += length;
      c->gate_space = SLUICE_GATE_RAW;
    });
  }
  return both.groups;
}
SLUICE_CONFIGS(Packs, packs());

std::vector<Group> sizes() {
  Both both;
  const struct {
    int64_t H, HV, K, V;
  } kSizes[] = {{1, 1, 128, 128}, {2, 6, 64, 128}, {1, 3, 128, 64}, {3, 3, 1, 1},
                {1, 4, 60, 100},  {2, 2, 256, 40}, {1, 1, 33, 256}, {5, 5, 7, 31}};
  for (const auto& s : kSizes) {
    both.add(named("H", s.H, "_HV", s.HV, "_K", s.K, "_V", s.V), [&](BackwardConfig* c) {
      c->H = s.H, c->HV = s.HV, c->K = s.K, c->V = s.V;
      c->head_map = s.HV == 6 ? SLUICE_HEAD_MAP_CYCLIC : SLUICE_HEAD_MAP_BLOCK;
      c->layout = s.K == 60 || s.K == 7 ? SLUICE_STATE_VK : SLUICE_STATE_KV;
    });
  }
  return both.groups;
}
SLUICE_CONFIGS(Sizes, sizes());

std::vector<Group> gates() {
  Both both;
  const std::pair<const char*, GateProfile> kProfiles[] = {
      {"none", GateProfile::kNone},           {"zero", GateProfile::kZero},
      {"slow", GateProfile::kSlow},           {"strong", GateProfile::kStrong},
      {"resets", GateProfile::kResets},       {"infinite", GateProfile::kMinusInfinity},
      {"halfzeros", GateProfile::kHalfZeros}, {"mixed", GateProfile::kMixed}};
  for (const auto& [name, profile] : kProfiles) {
    both.add(name, [&](BackwardConfig* c) { c->gates = profile, c->T = 150, c->HV = 4; });
  }
  both.add("linear", [](BackwardConfig* c) { c->gate_space = SLUICE_GATE_LINEAR; });
  both.add("raw", [](BackwardConfig* c) { c->gate_space = SLUICE_GATE_RAW, c->T = 200; });
  both.add("bounded", [](BackwardConfig* c) {
    c->gate_space = SLUICE_GATE_RAW_BOUNDED, c->gate_lower_bound = -5.0, c->T = 200;
  });
  both.add("bounded_alone", [](BackwardConfig* c) {
    c->gate_space = SLUICE_GATE_RAW_BOUNDED, c->gate_lower_bound = -0.5;
    c->has_gate_parameters = false;
  });
  return both.groups;
}
SLUICE_CONFIGS(Gates, gates());

std::vector<Group> key_gates() {
  Both both;
  const std::pair<const char*, GateProfile> kProfiles[] = {
      {"zero", GateProfile::kZero},
      {"slow", GateProfile::kSlow},
      {"strong", GateProfile::kStrong},
      {"resets", GateProfile::kResets},
      {"infinite", GateProfile::kMinusInfinity}};
  const auto add = [&](const std::string& name, auto change) {
    both.add(named("key_", name), [&](BackwardConfig* c) { c->key_gates = true, change(c); });
  };
  for (const auto& [name, profile] : kProfiles) {
    add(name, [&](BackwardConfig* c) { c->gates = profile, c->T = 150; });
  }
  add("linear", [](BackwardConfig* c) { c->gate_space = SLUICE_GATE_LINEAR; });
  add("raw", [](BackwardConfig* c) {
    c->gate_space = SLUICE_GATE_RAW, c->lengths = {1, 100, 0, 17}, c->T = 120, c->HV = 4;
    c->H = 2, c->K = 37, c->V = 20, c->wild = true, c->qk_norm = SLUICE_QK_NORM_L2;
  });
  add("bounded", [](BackwardConfig* c) {
    c->gate_space = SLUICE_GATE_RAW_BOUNDED, c->gate_lower_bound = -5, c->B = 2;
    c->layout = SLUICE_STATE_VK, c->io = c->gate = kBF16;
  });
  add("bounded_alone", [](BackwardConfig* c) {
    c->gate_space = SLUICE_GATE_RAW_BOUNDED, c->gate_lower_bound = -1;
    c->has_gate_parameters = false;
    if (c->rule == SLUICE_RULE_GATED_DELTA) c->beta_space = SLUICE_BETA_LOGIT;
  });
  return both.groups;
}
SLUICE_CONFIGS(KeyGates, key_gates());

/// Few tokens in every space: what an emulator can run.
std::vector<Group> short_key_gates() {
  Both both;
  for (const auto space :
       {SLUICE_GATE_LOG, SLUICE_GATE_LINEAR, SLUICE_GATE_RAW, SLUICE_GATE_RAW_BOUNDED}) {
    both.add(named("key_short_", space), [&](BackwardConfig* c) {
      c->key_gates = true, c->gate_space = space, c->gates = GateProfile::kMinusInfinity;
      c->lengths = {3, 0, 17}, c->T = 22, c->K = 9, c->V = 5, c->wild = true;
      if (space == SLUICE_GATE_RAW_BOUNDED) c->gate_lower_bound = -5;
    });
  }
  return both.groups;
}
SLUICE_CONFIGS(KeyShort, short_key_gates());

std::vector<Group> dtypes() {
  Both both;
  const sluice_dtype kAll[] = {kF32, kBF16, kF16};
  for (const sluice_dtype io : kAll) {
    for (const sluice_dtype gradient : kAll) {
      both.add(named(dtype_name(io), "_", dtype_name(gradient)), [&](BackwardConfig* c) {
        c->io = c->d_o = io, c->gate = c->state = gradient, c->gradient = gradient;
        c->qk_norm = SLUICE_QK_NORM_L2;
      });
    }
  }
  return both.groups;
}
SLUICE_CONFIGS(Dtypes, dtypes());

/// What tensor cores take, where a backend has them: 16 bits, K = V of 64 or 128.
std::vector<Group> halves(int64_t size) {
  Both both;
  for (const sluice_dtype io : {kBF16, kF16}) {
    const auto add = [&](const std::string& suffix, auto change) {
      both.add(named(dtype_name(io), "_", suffix), [&](BackwardConfig* c) {
        c->K = c->V = size;
        c->io = c->d_o = c->gradient = io;
        change(c);
      });
    };
    for (const int64_t T : {1, 63, 64, 65, 200}) {
      add(named("T", T), [&](BackwardConfig* c) {
        c->T = T, c->B = 2;
        // One token's dbeta is most of all of them on this draw: no mean over roundings.
        if (size == 64 && T == 64) c->gradient = kF32;
      });
    }
    add("heads", [](BackwardConfig* c) {
      c->H = 2, c->HV = 6, c->T = 130, c->head_map = SLUICE_HEAD_MAP_CYCLIC;
      c->qk_norm = SLUICE_QK_NORM_L2, c->gradient = kF32;
    });
    add("pack", [](BackwardConfig* c) {
      c->lengths = {1, 130, 0, 64, 63}, c->T = 261, c->gate_space = SLUICE_GATE_RAW;
      // One token's dgate may be most of all of them: no mean over roundings.
      c->qk_norm = SLUICE_QK_NORM_L2, c->gradient = kF32;
    });
    add("plain", [](BackwardConfig* c) {
      c->initial = c->d_final = c->beta = false, c->gates = GateProfile::kNone, c->T = 100;
    });
    // Rows that the copy engine cannot read, of more heads than go through the workspace at once.
    add("misaligned", [](BackwardConfig* c) {
      c->wild = true, c->T = 70, c->H = c->HV = 4, c->qk_norm = SLUICE_QK_NORM_L2;
    });
    add("misaligned_pack", [](BackwardConfig* c) {
      c->wild = true, c->lengths = {70, 0, 64}, c->T = 140, c->H = 2, c->HV = 4;
    });
    // Likewise, heads by steps and batch entries.
    add("misaligned_cyclic", [](BackwardConfig* c) {
      c->wild = true, c->T = 70, c->H = 2, c->HV = 4, c->head_map = SLUICE_HEAD_MAP_CYCLIC;
      c->initial = c->d_final = c->outputs[7] = false, c->gradient = kF32;
    });
    add("misaligned_batch", [](BackwardConfig* c) {
      c->wild = true, c->B = 3, c->T = 70, c->gate_space = SLUICE_GATE_RAW, c->gradient = kF32;
    });
    // One head, which goes in windows of chunks.
    add("misaligned_head", [](BackwardConfig* c) {
      c->wild = true, c->T = 421, c->H = c->HV = 1, c->qk_norm = SLUICE_QK_NORM_L2;
      c->gradient = kF32;
    });
    add("misaligned_head_of_a_pack", [](BackwardConfig* c) {
      c->wild = true, c->lengths = {30, 0, 300, 1, 90}, c->T = 421, c->H = c->HV = 1;
      c->layout = SLUICE_STATE_VK, c->gradient = kF32;
    });
    add("vk", [](BackwardConfig* c) {
      c->layout = SLUICE_STATE_VK, c->lengths = {70, 0, 64}, c->T = 140, c->H = 1, c->HV = 3;
      c->qk_norm = SLUICE_QK_NORM_L2;
    });
    add("cos75", [](BackwardConfig* c) {
      c->keys = KeyProfile::kCos75, c->gates = GateProfile::kSlow, c->T = 150;
    });
    add("only_initial", [](BackwardConfig* c) {
      for (int i = 0; i < 7; ++i) c->outputs[i] = false;
      c->T = 130;
    });
    add("no_beta", [](BackwardConfig* c) {
      c->betas = BetaProfile::kZero, c->T = 150, c->gradient = kF32;  // as in the pack
    });
    add("resets", [](BackwardConfig* c) {
      c->gates = GateProfile::kMinusInfinity, c->T = 150, c->gradient = kF32;
    });
    add("no_beta_values", [](BackwardConfig* c) {
      c->betas = BetaProfile::kZero, c->T = 150;
      for (const int left : {0, 1, 3}) c->outputs[left] = false;
    });
    add("strong", [](BackwardConfig* c) {
      c->gates = GateProfile::kStrong, c->T = 150, c->gradient = kF32;  // as in the pack
    });
    add("one_head", [](BackwardConfig* c) { c->HV = 1, c->T = 200; });  // both chains in one launch
    // Of these float16 has few digits, or not their sums: the result is linear.
    add("tiny", [](BackwardConfig* c) { c->size = 0x1p-20, c->T = 150, c->gradient = kF32; });
    add("huge", [](BackwardConfig* c) { c->size = 0x1p12, c->T = 150, c->gradient = kF32; });
    add("large_pack", [](BackwardConfig* c) {
      c->size = 0x1p7, c->lengths = {70, 0, 64}, c->T = 140, c->HV = 4;
      c->outputs[3] = false;  // as in the pack
    });
    add("slow", [](BackwardConfig* c) { c->gates = GateProfile::kSlow, c->T = 150; });
    add("negative", [](BackwardConfig* c) {
      c->beta_space = SLUICE_BETA_LOGIT, c->eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
      if (c->rule != SLUICE_RULE_GATED_DELTA) c->beta_space = SLUICE_BETA_VALUE;
      if (c->rule != SLUICE_RULE_GATED_DELTA) c->eigenvalues = SLUICE_EIGENVALUES_POSITIVE;
    });
    add("only_gates", [](BackwardConfig* c) {
      c->gate_space = SLUICE_GATE_RAW;
      for (const int left : {0, 1, 2, 7}) c->outputs[left] = false;
    });
  }
  both.add("bfloat16_of_float32", [&](BackwardConfig* c) {
    c->K = c->V = size, c->io = c->gradient = kBF16, c->T = 150, c->HV = 3;
  });
  return both.groups;
}

/// A test for each type: some of these take an emulator half a minute.
std::vector<Group> by_type(const std::vector<Group>& groups) {
  std::vector<Group> parts;
  for (const Group& group : groups) {
    for (const sluice_dtype io : {kBF16, kF16}) {
      Group part{named(group.name, "_", dtype_name(io)), {}};
      for (const BackwardConfig& c : group.configs) {
        if (same_dtype(c.io, io)) part.configs.push_back(c);
      }
      parts.push_back(part);
    }
  }
  return parts;
}
SLUICE_CONFIGS(Halves, by_type(halves(128)));
SLUICE_CONFIGS(NarrowHalves, by_type(halves(64)));

/// d_o has a type of its own. Tensor cores round it to bfloat16 beside q, k and v of that type; beside
/// float16 ones, whose exponents do not hold float32's, the call goes another way.
std::vector<Group> types_of_d_o(int64_t size, bool key_gates) {
  Both both;
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype d_o : {kF32, kBF16, kF16}) {
      if (same_dtype(io, d_o)) continue;
      both.add(named(dtype_name(io), "_beside_", dtype_name(d_o)), [&](BackwardConfig* c) {
        c->io = io, c->d_o = d_o, c->K = c->V = size, c->T = key_gates ? 21 : 70;
        c->key_gates = key_gates, c->qk_norm = SLUICE_QK_NORM_L2;
      });
    }
  }
  // Values that float16 would round to infinity or zero.
  for (const double size_of_d_o : {0x1p40, 0x1p-40}) {
    both.add(named("float16_beside_2_to_", size_of_d_o > 1 ? "40" : "minus_40"),
             [&](BackwardConfig* c) {
               c->io = kF16, c->K = c->V = size, c->T = key_gates ? 21 : 70;
               c->key_gates = key_gates, c->size = size_of_d_o;
             });
  }
  return both.groups;
}
SLUICE_CONFIGS(TypesOfGradients, types_of_d_o(32, false));
SLUICE_CONFIGS(TypesOfGradientsKeyWise, types_of_d_o(9, true));
SLUICE_CONFIGS(TypesOfGradientsHalves, types_of_d_o(64, false));

std::vector<Group> options() {
  Both both;
  both.add("plain", [](BackwardConfig* c) { c->initial = c->d_final = c->beta = false; });
  both.add("scale", [](BackwardConfig* c) { c->scale = 0.7; });
  both.add("zero_scale", [](BackwardConfig* c) { c->scale = 0.0; });
  both.add("norm", [](BackwardConfig* c) { c->qk_norm = SLUICE_QK_NORM_L2, c->HV = 3; });
  both.add("norm_alone", [](BackwardConfig* c) { c->qk_norm = SLUICE_QK_NORM_L2, c->H = 2; });
  for (int left = 0; left < 8; ++left) {
    both.add(named("without", left), [&](BackwardConfig* c) {
      c->gate_space = SLUICE_GATE_RAW;
      c->outputs[left] = false;
    });
    both.add(named("only", left), [&](BackwardConfig* c) {
      c->gate_space = SLUICE_GATE_RAW;
      for (int i = 0; i < 8; ++i) c->outputs[i] = i == left;
    });
  }
  for (Group& group : both.groups) {
    if (group.name != "delta") continue;
    for (BackwardConfig& c : group.configs)
      c.beta_space = c.beta ? SLUICE_BETA_LOGIT : c.beta_space;
    group.configs[1].eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
    group.configs[2].eigenvalues = SLUICE_EIGENVALUES_NEGATIVE;
    group.configs[2].beta_space = SLUICE_BETA_VALUE;
  }
  return both.groups;
}
SLUICE_CONFIGS(Options, options());

std::vector<Group> keys() {
  Both both;
  both.add("cos75", [](BackwardConfig* c) { c->keys = KeyProfile::kCos75, c->T = 200; });
  both.add("cos90", [](BackwardConfig* c) {
    c->keys = KeyProfile::kCos90, c->T = 200, c->gates = GateProfile::kSlow;
  });
  both.add("zero", [](BackwardConfig* c) { c->keys = KeyProfile::kZero; });
  return both.groups;
}
SLUICE_CONFIGS(Keys, keys());

std::vector<Group> random_configs() {
  Both both;
  for (int i = 0; i < 24; ++i) {
    both.add(named("random", i), [&](BackwardConfig* c) {
      Random random(static_cast<uint64_t>(i) + 77);
      c->wild = true;
      c->H = 1 + pick(&random, 3), c->HV = c->H * (1 + pick(&random, 3));
      c->K = 1 + pick(&random, 140), c->V = 1 + pick(&random, 140);
      c->T = pick(&random, 200), c->B = 1 + pick(&random, 2);
      if (chance(&random, 2)) {
        c->B = 1, c->lengths = {pick(&random, 70), c->T, pick(&random, 3)};
        c->T += 75;
      }
      c->io = one_of(&random, {kF32, kBF16, kF16}), c->d_o = one_of(&random, {kF32, kBF16});
      c->gate = one_of(&random, {kF32, kBF16}), c->state = one_of(&random, {kF32, kBF16});
      c->layout = one_of(&random, {SLUICE_STATE_KV, SLUICE_STATE_VK});
      c->head_map = one_of(&random, {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC});
      c->gate_space = one_of(&random, {SLUICE_GATE_LOG, SLUICE_GATE_RAW});
      c->gates = one_of(&random, {GateProfile::kSlow, GateProfile::kMixed, GateProfile::kStrong});
      c->initial = chance(&random, 2), c->d_final = chance(&random, 2);
    });
  }
  return both.groups;
}
SLUICE_CONFIGS(Random, random_configs());

}  // namespace
}  // namespace sluice::check
