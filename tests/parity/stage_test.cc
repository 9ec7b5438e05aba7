// Measures every stage of a prefill, and simple GLA, on a backend against the float64 reference: a
// ladder of lengths, packs, dtypes, options, hard gates, random configurations. Inputs that a stage
// must not read, outputs and the memory between elements are NaN and watched.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "parity/stage_call.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// The configurations of one stage: one test, so that a thousand calls are not a thousand
/// processes.
struct Group {
  std::string name;
  std::vector<StageConfig> configs;
};
void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }
std::string group_name(const ::testing::TestParamInfo<Group>& info) { return info.param.name; }

std::vector<Group> by_stage(const std::vector<StageConfig>& configs) {
  std::vector<Group> groups;
  for (const StageKind& kind : kStageKinds) {
    Group group{kind.name, {}};
    for (const StageConfig& c : configs) {
      if (c.kind == group.name) group.configs.push_back(c);
    }
    if (!group.configs.empty()) groups.push_back(group);
  }
  return groups;
}

class ChunkStage : public ::testing::TestWithParam<Group> {};

TEST_P(ChunkStage, MatchesReference) {
  for (const StageConfig& c : GetParam().configs) {
    const StageResult truth = run_stage(c, SLUICE_IMPL_REFERENCE, kF32);
    const StageResult found = run_stage(c, implementations_under_test().front());
    const Verdict verdict = judge_stage(c, found, truth);
    EXPECT_TRUE(verdict.pass) << c.name << " " << found.kernel << "\n" << verdict.line;
  }
}

#define SLUICE_CONFIGS(name, configs) \
  INSTANTIATE_TEST_SUITE_P(name, ChunkStage, ::testing::ValuesIn(by_stage(configs)), group_name)

/// Every stage with every change, named by both.
template <class Change>
void for_kinds(std::vector<StageConfig>* configs, const std::string& suffix, Change change) {
  for (const StageKind& kind : kStageKinds) {
    StageConfig c = of_kind(kind);
    c.name = named(kind.name, "_", suffix);
    c.seed = configs->size() + 1;
    change(&c);
    configs->push_back(c);
  }
}

std::vector<StageConfig> lengths() {
  std::vector<StageConfig> configs;
  for (const int64_t C : {64, 128}) {
    for (const int64_t T : {0, 1, 15, 63, 64, 65, 127, 128, 129, 255, 447}) {
      for_kinds(&configs, named("C", C, "_T", T), [&](StageConfig* c) { c->C = C, c->T = T; });
    }
  }
  for (const int64_t C : {16, 32}) {
    for (const int64_t T : {17, 50}) {
      for_kinds(&configs, named("C", C, "_T", T),
                [&](StageConfig* c) { c->C = C, c->T = T, c->B = 2; });
    }
  }
  return configs;
}
SLUICE_CONFIGS(Lengths, lengths());

std::vector<StageConfig> packs() {
  const std::vector<std::vector<int64_t>> kPacks = {
      {150, 300}, {129, 255}, {1, 17, 128, 129, 255}, {0, 5, 0, 64, 0}, {0}, {1, 63, 64, 65, 127}};
  std::vector<StageConfig> configs;
  for (size_t i = 0; i < kPacks.size(); ++i) {
    for_kinds(&configs, named("pack", i), [&](StageConfig* c) {
      c->lengths = kPacks[i];
      c->C = i % 2 == 0 ? 64 : 128;
      c->T = 0;
      for (const int64_t length : kPacks[i]) c->T += length;
      c->T += 3;  // rows past the end
      c->cumulated = i % 3 != 0;
    });
  }
  return configs;
}
SLUICE_CONFIGS(Packs, packs());

std::vector<StageConfig> sizes() {
  std::vector<StageConfig> configs;
  const struct {
    int64_t H, HV, K, V;
  } kSizes[] = {{1, 1, 128, 128}, {2, 6, 64, 128}, {1, 3, 128, 64}, {3, 3, 1, 1},
                {1, 4, 60, 100},  {2, 2, 256, 40}, {1, 1, 33, 256}, {5, 5, 7, 31}};
  for (const auto& s : kSizes) {
    for_kinds(&configs, named("H", s.H, "_HV", s.HV, "_K", s.K, "_V", s.V), [&](StageConfig* c) {
      c->H = s.H, c->HV = s.HV, c->K = s.K, c->V = s.V;
      c->head_map = s.HV == 6 ? SLUICE_HEAD_MAP_CYCLIC : SLUICE_HEAD_MAP_BLOCK;
    });
  }
  return configs;
}
SLUICE_CONFIGS(Sizes, sizes());

std::vector<StageConfig> gates() {
  std::vector<StageConfig> configs;
  const std::pair<const char*, GateProfile> kProfiles[] = {
      {"zero", GateProfile::kZero},
      {"slow", GateProfile::kSlow},
      {"strong", GateProfile::kStrong},
      {"resets", GateProfile::kResets},
      {"infinite", GateProfile::kMinusInfinity},
      {"mixed", GateProfile::kMixed}};
  for (const auto& [name, profile] : kProfiles) {
    for (const bool cumulated : {true, false}) {
      for_kinds(&configs, named(name, cumulated ? "_sums" : "_steps"),
                [&](StageConfig* c) { c->gates = profile, c->cumulated = cumulated, c->T = 150; });
    }
  }
  for_kinds(&configs, "growth", [](StageConfig* c) {
    c->gates = GateProfile::kZero, c->growth = 0.02, c->cumulated = false, c->T = 150;
  });
  for (const auto& [name, space] : {std::pair{"linear", SLUICE_GATE_LINEAR},
                                    {"raw", SLUICE_GATE_RAW},
                                    {"bounded", SLUICE_GATE_RAW_BOUNDED},
                                    {"bounded_alone", SLUICE_GATE_RAW_BOUNDED}}) {
    for (const sluice_dtype dtype : {kF32, kBF16}) {
      for_kinds(&configs, named(name, "_", dtype_name(dtype)), [&](StageConfig* c) {
        if (c->stage != SLUICE_STAGE_CHUNK_CUMSUM) return;
        c->gate_space = space, c->gate = dtype, c->HV = 5, c->K = 37, c->T = 150, c->wild = true;
        c->gate_parameters = std::string_view(name) != "bounded_alone";
      });
    }
  }
  for_kinds(&configs, "none", [](StageConfig* c) {
    if (!sums_gates(*c)) c->gates = GateProfile::kNone;
  });
  return configs;
}
SLUICE_CONFIGS(Gates, gates());

std::vector<StageConfig> dtypes() {
  std::vector<StageConfig> configs;
  for (const sluice_dtype io : {kF32, kBF16, kF16}) {
    for (const sluice_dtype out : {kF32, kBF16, kF16}) {
      for_kinds(&configs, named(dtype_name(io), "_", dtype_name(out)), [&](StageConfig* c) {
        c->io = io, c->out = out, c->gate = out, c->h = io, c->state = out;
        c->K = 40, c->cumulated = same_dtype(io, kF16);
      });
    }
  }
  return configs;
}
SLUICE_CONFIGS(Dtypes, dtypes());

std::vector<StageConfig> options() {
  std::vector<StageConfig> configs;
  for_kinds(&configs, "vk", [](StageConfig* c) { c->layout = SLUICE_STATE_VK, c->V = 40; });
  for_kinds(&configs, "stateless", [](StageConfig* c) { c->initial = c->final = false; });
  for_kinds(&configs, "no_beta_no_h",
            [](StageConfig* c) { c->beta = c->v_new = c->supplied_h = false; });
  for_kinds(&configs, "scale", [](StageConfig* c) { c->scale = -0.3; });
  for_kinds(&configs, "padded", [](StageConfig* c) { c->B = 3, c->slots = true, c->padded = {1}; });
  for_kinds(&configs, "correlated", [](StageConfig* c) { c->keys = KeyProfile::kCos75; });
  StageConfig reverse = of_kind(kStageKinds[0]);
  reverse.name = "reverse", reverse.direction = SLUICE_DIRECTION_REVERSE;
  configs.push_back(reverse);
  for (const int64_t n : {16, 32, 64, 128}) {
    for (const sluice_triangle triangle : {SLUICE_TRIANGLE_LOWER, SLUICE_TRIANGLE_UPPER}) {
      for (const int rank : {0, 2, 3, 4}) {
        StageConfig c = of_kind(kStageKinds[2]);
        c.name = named("solve_", n, triangle == SLUICE_TRIANGLE_UPPER ? "_upper" : "_lower",
                       "_rank", rank);
        c.C = n, c.triangle = triangle, c.matrix_rank = rank, c.wild = rank == 4;
        c.T = n + 21, c.B = rank == 2 ? 1 : 2, c.HV = rank == 4 || rank == 0 ? 3 : 1;
        c.io = n == 32 ? kF16 : n == 64 ? kBF16 : kF32;
        configs.push_back(c);
      }
    }
  }
  return configs;
}
SLUICE_CONFIGS(Options, options());

StageConfig draw(uint64_t seed) {
  Random random(seed * 7919 + 17);
  StageConfig c = of_kind(kStageKinds[seed % std::size(kStageKinds)]);
  c.name = named("seed", seed), c.seed = seed;
  c.H = 1 + pick(&random, 3), c.HV = c.H * (1 + pick(&random, 3));
  c.K = 1 + pick(&random, 80), c.V = 1 + pick(&random, 80);
  c.C = one_of<int64_t>(&random, {16, 32, 64, 128});
  c.B = 1 + pick(&random, 2), c.T = pick(&random, 160);
  if (chance(&random, 2)) {
    c.B = 1;
    for (int64_t n = pick(&random, 5); n >= 0; --n) c.lengths.push_back(pick(&random, 90));
    c.T = pick(&random, 4);
    for (const int64_t length : c.lengths) c.T += length;
  }
  c.head_map = one_of(&random, {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC});
  c.direction = one_of(&random, {SLUICE_DIRECTION_FORWARD, SLUICE_DIRECTION_REVERSE});
  c.triangle = one_of(&random, {SLUICE_TRIANGLE_LOWER, SLUICE_TRIANGLE_UPPER});
  c.keys = one_of(&random, {KeyProfile::kRandomUnit, KeyProfile::kSiluLike, KeyProfile::kCos75});
  c.gates = one_of(&random, {GateProfile::kSlow, GateProfile::kFlashQla, GateProfile::kStrong});
  c.beta = !chance(&random, 4), c.cumulated = chance(&random, 2);
  c.supplied_h = c.supplied_h && !chance(&random, 4), c.v_new = !chance(&random, 4);
  c.initial = !chance(&random, 4), c.final = !chance(&random, 4);
  c.slots = (c.initial || c.final) && chance(&random, 2);
  if (c.slots) c.padded = some_of(&random, c.sequences(), 5);
  c.layout = one_of(&random, {SLUICE_STATE_KV, SLUICE_STATE_VK});
  const auto any_float = [&] { return one_of(&random, {kF32, kBF16, kF16}); };
  c.io = any_float(), c.out = any_float(), c.gate = any_float();
  c.state = any_float(), c.h = any_float();
  c.wild = !chance(&random, 5);
  return c;
}

std::vector<StageConfig> random_configs() {
  std::vector<StageConfig> configs;
  for (uint64_t seed = 0; seed < 169; ++seed) configs.push_back(draw(seed));
  return configs;
}
SLUICE_CONFIGS(Random, random_configs());

}  // namespace
}  // namespace sluice::check
