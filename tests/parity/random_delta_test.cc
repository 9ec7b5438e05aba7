// Measures chunk_forward and recurrent_step on configurations drawn at random from everything that
// sluice.h allows: sizes, packs, dtypes, strides, slots, pads, options. Each is one seed, and the
// name of a failing test is all that is needed to repeat it.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "parity/delta_call.hpp"
#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr int kSeeds = 150;

sluice_dtype any_float(Random* random) { return one_of(random, {kF32, kF32, kBF16, kF16}); }

void draw_sizes(Random* r, DeltaConfig* c) {
  const bool step = c->op == SLUICE_OP_RECURRENT_STEP;
  const int64_t longest = step ? 17 : one_of<int64_t>(r, {5, 40, 140});
  c->H = 1 + pick(r, 3), c->HV = c->H * one_of<int64_t>(r, {1, 1, 2, 3, 4});
  c->K = one_of<int64_t>(r, {16, 32, 64, 128, 16 + pick(r, 100)});
  c->V = one_of<int64_t>(r, {16, 32, 64, 128, 1 + pick(r, 100)});
  c->packed = chance(r, 2);
  c->B = pick(r, 5), c->T = pick(r, longest);
  for (int64_t n = pick(r, 6); n > 0; --n) {
    c->lengths.push_back(chance(r, 4) ? 0 : pick(r, longest));
  }
  if (!c->packed) c->lengths.clear();
  c->rows_past_end = pick(r, 4);
  c->wild = !chance(r, 4);
}

void draw_values(Random* r, DeltaConfig* c) {
  c->io = any_float(r), c->o = chance(r, 2) ? c->io : any_float(r);
  c->gate = any_float(r), c->beta = any_float(r), c->per_head = any_float(r);
  c->initial = any_float(r), c->final = any_float(r), c->checkpoint = any_float(r);
  c->index = one_of(r, {kI32, kI64});
  c->keys = one_of(r, {KeyProfile::kRandomUnit, KeyProfile::kSiluLike});
  c->gates = one_of(r, {GateProfile::kSlow, GateProfile::kMixed, GateProfile::kStrong,
                        GateProfile::kNone, GateProfile::kFlashQla});
  c->betas = one_of(r, {BetaProfile::kSigmoid, BetaProfile::kSigmoid, BetaProfile::kAbsent});
  c->gate_space = one_of(r, {SLUICE_GATE_LOG, SLUICE_GATE_LINEAR, SLUICE_GATE_RAW});
  c->beta_space = one_of(r, {SLUICE_BETA_VALUE, SLUICE_BETA_LOGIT});
  if (c->betas == BetaProfile::kAbsent) c->beta_space = SLUICE_BETA_VALUE;
  c->eigenvalues = one_of(r, {SLUICE_EIGENVALUES_POSITIVE, SLUICE_EIGENVALUES_NEGATIVE});
  c->qk_norm = one_of(r, {SLUICE_QK_NORM_NONE, SLUICE_QK_NORM_L2});
  c->head_map = one_of(r, {SLUICE_HEAD_MAP_BLOCK, SLUICE_HEAD_MAP_CYCLIC});
  if (chance(r, 6)) {
    c->rule = SLUICE_RULE_LINEAR_ATTENTION;
    c->eigenvalues = SLUICE_EIGENVALUES_POSITIVE, c->beta_space = SLUICE_BETA_VALUE;
  }
  if (chance(r, 3)) c->scale = 0.25 * static_cast<double>(pick(r, 9) - 4);
}

void draw_states(Random* r, DeltaConfig* c) {
  const bool step = c->op == SLUICE_OP_RECURRENT_STEP;
  c->layout = one_of(r, {SLUICE_STATE_KV, SLUICE_STATE_VK});
  c->slots = one_of(r, {Slots::kNone, Slots::kRead, Slots::kSeparate, Slots::kShared});
  c->pad_below = c->slots == Slots::kNone ? 0 : pick(r, 2);
  c->has_initial = step || !chance(r, 4), c->has_final = !chance(r, 4);
  c->in_place = c->has_initial && c->has_final && chance(r, 3);
  if (c->slots != Slots::kNone) c->padded = some_of(r, c->sequences(), 5);
  if (c->slots == Slots::kSeparate) c->padded_writes = some_of(r, c->sequences(), 5);
  if (chance(r, 2)) c->fresh = some_of(r, c->sequences(), 3);
  if (!step) {
    if (chance(r, 3)) c->checkpoint_every = 64;
    return;
  }
  c->state_writes =
      one_of(r, {SLUICE_STATE_WRITE_LAST, SLUICE_STATE_WRITE_PER_TOKEN, SLUICE_STATE_WRITE_NONE});
  const bool tables = c->slots == Slots::kSeparate || c->slots == Slots::kShared;
  if (c->state_writes == SLUICE_STATE_WRITE_PER_TOKEN && !tables) c->slots = Slots::kShared;
  if (c->state_writes == SLUICE_STATE_WRITE_NONE) {
    c->has_final = c->in_place = false;
    if (c->slots != Slots::kNone) c->slots = Slots::kRead;
    c->padded_writes.clear();
  }
  if (c->slots == Slots::kNone) return;
  if (c->state_writes == SLUICE_STATE_WRITE_PER_TOKEN || chance(r, 2)) {
    c->columns = 16;  // max_tokens; the table asks for many slots, so they are kept small
    c->K = std::min<int64_t>(c->K, 40), c->V = std::min<int64_t>(c->V, 24);
  }
  c->num_accepted = c->columns > 0 && chance(r, 2);
}

DeltaConfig draw(sluice_op op, int seed) {
  Random random(static_cast<uint64_t>(seed) * 7919 + static_cast<uint64_t>(op));
  DeltaConfig c{.name = named("seed", seed), .seed = static_cast<uint64_t>(seed), .op = op};
  draw_sizes(&random, &c);
  draw_values(&random, &c);
  draw_states(&random, &c);
  return c;
}

class RandomDelta : public ::testing::TestWithParam<DeltaConfig> {};

TEST_P(RandomDelta, MatchesRecurrence) {
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

std::vector<DeltaConfig> all(sluice_op op) {
  std::vector<DeltaConfig> configs;
  for (int seed = 0; seed < kSeeds; ++seed) configs.push_back(draw(op, seed));
  return configs;
}

/// Key-wise gates, every third raw one of them bounded; every other configuration is linear
/// attention (GLA).
std::vector<DeltaConfig> all_key_wise(sluice_op op) {
  std::vector<DeltaConfig> configs;
  for (int seed = 0; seed < kSeeds; ++seed) {
    DeltaConfig c = draw(op, kSeeds + seed);
    c.key_gates = true;
    if (c.gates == GateProfile::kNone) c.gates = GateProfile::kMixed;
    c.has_gate_parameters = seed % 5 != 0;
    if (c.gate_space == SLUICE_GATE_RAW && seed % 3 == 0) {
      c.gate_space = SLUICE_GATE_RAW_BOUNDED, c.gate_lower_bound = -5;
    }
    if (seed % 2 == 0) {
      c.rule = SLUICE_RULE_LINEAR_ATTENTION;
      c.eigenvalues = SLUICE_EIGENVALUES_POSITIVE, c.beta_space = SLUICE_BETA_VALUE;
    }
    configs.push_back(c);
  }
  return configs;
}

std::string config_name(const ::testing::TestParamInfo<DeltaConfig>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(ChunkForward, RandomDelta,
                         ::testing::ValuesIn(all(SLUICE_OP_CHUNK_FORWARD)), config_name);
INSTANTIATE_TEST_SUITE_P(RecurrentStep, RandomDelta,
                         ::testing::ValuesIn(all(SLUICE_OP_RECURRENT_STEP)), config_name);
INSTANTIATE_TEST_SUITE_P(KeyChunkForward, RandomDelta,
                         ::testing::ValuesIn(all_key_wise(SLUICE_OP_CHUNK_FORWARD)), config_name);
INSTANTIATE_TEST_SUITE_P(KeyRecurrentStep, RandomDelta,
                         ::testing::ValuesIn(all_key_wise(SLUICE_OP_RECURRENT_STEP)), config_name);

}  // namespace
}  // namespace sluice::check
