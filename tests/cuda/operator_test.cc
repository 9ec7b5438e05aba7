// Measures sluice_chunk_forward on CUDA views against the float64 recurrence: random configurations
// of every option that the one-launch kernel takes, and hard gates and keys, each repeatable from its
// name.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "parity/delta_call.hpp"
#include "parity/draw.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

constexpr int kSeeds = 120;

sluice_dtype any_float(Random* random) { return one_of(random, {kF32, kBF16, kF16}); }

DeltaConfig base(const std::string& name, uint64_t seed) {
  DeltaConfig c{.name = name, .seed = seed, .op = SLUICE_OP_CHUNK_FORWARD};
  c.K = c.V = 128;
  c.io = c.o = kBF16;
  return c;
}

void draw_tokens(Random* r, DeltaConfig* c) {
  c->H = 1 + pick(r, 3), c->HV = c->H * one_of<int64_t>(r, {1, 2, 3, 4});
  c->packed = chance(r, 2);
  c->B = 1 + pick(r, 3), c->T = one_of<int64_t>(r, {1, 63, 64, 65, 129, 1 + pick(r, 300)});
  if (c->packed) {
    for (int64_t n = 1 + pick(r, 6); n > 0; --n) {
      c->lengths.push_back(chance(r, 4) ? 0 : pick(r, 200));
    }
    c->rows_past_end = pick(r, 4);
  }
  c->io = c->o = one_of(r, {kBF16, kF16});
  c->gate = any_float(r), c->beta = any_float(r), c->per_head = any_float(r);
  c->index = one_of(r, {kI32, kI64});
  c->keys = one_of(r, {KeyProfile::kRandomUnit, KeyProfile::kSiluLike});
  c->gates = one_of(r, {GateProfile::kSlow, GateProfile::kMixed, GateProfile::kStrong,
                        GateProfile::kNone, GateProfile::kFlashQla});
  c->betas = one_of(r, {BetaProfile::kSigmoid, BetaProfile::kSigmoid, BetaProfile::kAbsent});
  c->gate_space = one_of(r, {SLUICE_GATE_LOG, SLUICE_GATE_LINEAR, SLUICE_GATE_RAW});
  c->beta_space = one_of(r, {SLUICE_BETA_VALUE, SLUICE_BETA_LOGIT});
  if (c->betas == BetaProfile::kAbsent) c->beta_space = SLUICE_BETA_VALUE;
  c->qk_norm = one_of(r, {SLUICE_QK_NORM_NONE, SLUICE_QK_NORM_L2});
  c->head_map = one_of(r, {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC});
  if (chance(r, 3)) c->scale = 0.25 * static_cast<double>(pick(r, 9) - 4);
}

void draw_states(Random* r, DeltaConfig* c) {
  c->initial = any_float(r), c->final = any_float(r), c->checkpoint = any_float(r);
  c->layout = one_of(r, {SLUICE_STATE_KV, SLUICE_STATE_VK});
  c->slots = one_of(r, {Slots::kNone, Slots::kRead, Slots::kSeparate, Slots::kShared});
  c->pad_below = c->slots == Slots::kNone ? 0 : pick(r, 2);
  c->has_initial = !chance(r, 4), c->has_final = !chance(r, 4);
  c->in_place = c->has_initial && c->has_final && chance(r, 3);
  if (c->slots != Slots::kNone) c->padded = some_of(r, c->sequences(), 5);
  if (c->slots == Slots::kSeparate) c->padded_writes = some_of(r, c->sequences(), 5);
  if (chance(r, 2)) c->fresh = some_of(r, c->sequences(), 3);
  if (chance(r, 3)) c->checkpoint_every = 64;
}

void draw_split(Random* r, DeltaConfig* c) {
  c->split = one_of(r, {SLUICE_SPLIT_AUTO, SLUICE_SPLIT_NEVER, SLUICE_SPLIT_COLUMNS,
                        SLUICE_SPLIT_SEGMENTS, SLUICE_SPLIT_SEGMENTS, SLUICE_SPLIT_LENGTH});
  if (c->split == SLUICE_SPLIT_SEGMENTS) c->split_value = static_cast<int32_t>(2 + pick(r, 4));
  if (c->split == SLUICE_SPLIT_LENGTH) c->split_value = static_cast<int32_t>(64 * pick(r, 3));
  c->history = one_of(r, {SLUICE_HISTORY_AUTO, SLUICE_HISTORY_STRICT, SLUICE_HISTORY_FORGET});
}

std::vector<DeltaConfig> random_configs() {
  std::vector<DeltaConfig> configs;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Random random(static_cast<uint64_t>(seed) * 6007 + 5);
    DeltaConfig c = base(named("seed", seed), static_cast<uint64_t>(seed));
    draw_tokens(&random, &c);
    draw_states(&random, &c);
    if (chance(&random, 2)) {
      c.K = one_of<int64_t>(&random, {64, 128}), c.V = one_of<int64_t>(&random, {64, 128, 256});
    }
    Random split(static_cast<uint64_t>(seed) * 7001 + 3);
    draw_split(&split, &c);
    configs.push_back(c);
  }
  return configs;
}

std::vector<DeltaConfig> hard_configs() {
  std::vector<DeltaConfig> configs;
  const std::pair<const char*, GateProfile> gates[] = {{"zero", GateProfile::kZero},
                                                       {"slow", GateProfile::kSlow},
                                                       {"strong", GateProfile::kStrong},
                                                       {"resets", GateProfile::kResets}};
  const std::pair<const char*, KeyProfile> keys[] = {{"unit", KeyProfile::kRandomUnit},
                                                     {"cos75", KeyProfile::kCos75}};
  for (const auto& [gate, gate_profile] : gates) {
    for (const auto& [key, key_profile] : keys) {
      for (const sluice_dtype io : {kBF16, kF16}) {
        DeltaConfig c = base(named(gate, key, same_dtype(io, kBF16) ? "bf16" : "fp16"), 3);
        c.B = 2, c.T = 500, c.H = 2, c.HV = 6;
        c.gates = gate_profile, c.keys = key_profile, c.io = c.o = io;
        c.split = SLUICE_SPLIT_NEVER;
        configs.push_back(c);
        c.name += "_cut";
        c.split = SLUICE_SPLIT_SEGMENTS, c.split_value = 4, c.history = SLUICE_HISTORY_FORGET;
        configs.push_back(c);
      }
    }
  }
  return configs;
}

/// Key and value heads of published models' tensor-parallel slices.
std::vector<DeltaConfig> slice_configs() {
  std::vector<DeltaConfig> configs;
  for (const auto& [H, HV] :
       {std::pair<int64_t, int64_t>{8, 16}, {4, 12}, {1, 4}, {4, 8}, {2, 8}}) {
    DeltaConfig c = base(named("H", H, "_HV", HV), 4);
    c.T = 300, c.H = H, c.HV = HV;
    configs.push_back(c);
    c.name += "_packed";
    c.lengths = {65, 0, 1, 200};
    configs.push_back(c);
  }
  return configs;
}

/// Sequences that the model cuts, first segments in the transition pass
/// (CudaLeadingSegments.AreChosenWhereTheTransitionPassIsLong).
std::vector<DeltaConfig> leading_configs() {
  DeltaConfig c = base("bf16", 5);
  c.T = 16384, c.H = 2, c.HV = 8, c.history = SLUICE_HISTORY_STRICT;
  DeltaConfig narrow = c;
  narrow.name = "fp16_k64", narrow.io = narrow.o = kF16, narrow.K = narrow.V = 64;
  narrow.qk_norm = SLUICE_QK_NORM_L2, narrow.slots = Slots::kShared, narrow.in_place = true;
  narrow.T -= 17;
  return {c, narrow};
}

class CudaChunkForward : public ::testing::TestWithParam<DeltaConfig> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device on this machine";
    }
  }
};

TEST_P(CudaChunkForward, MatchesRecurrence) {
  const DeltaConfig& c = GetParam();
  const DeltaResult truth = run_delta(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  const DeltaResult found = run_delta(c, SLUICE_IMPL_CUDA);
  ASSERT_EQ(found.code, SLUICE_OK) << found.message;
  const bool correlated = c.keys == KeyProfile::kCos75;
  const Verdict verdict = judge_delta(c, found, truth, correlated);
  EXPECT_TRUE(verdict.pass) << found.kernel << "\n" << verdict.line;
}

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Random, CudaChunkForward, ::testing::ValuesIn(random_configs()),
                         config_name);
INSTANTIATE_TEST_SUITE_P(Slices, CudaChunkForward, ::testing::ValuesIn(slice_configs()),
                         config_name);
INSTANTIATE_TEST_SUITE_P(Leading, CudaChunkForward, ::testing::ValuesIn(leading_configs()),
                         config_name);
INSTANTIATE_TEST_SUITE_P(Hard, CudaChunkForward, ::testing::ValuesIn(hard_configs()), config_name);

}  // namespace
}  // namespace sluice::check
