// Measures layer_decode with a replay ring: each call against the float64 reference on the same
// memory, and sessions of drafts against plain decoding of the accepted tokens. Convolution states
// are rolled back in both ways that sluice.h names.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "parity/ring_judge.hpp"
#include "parity/ring_layer_session.hpp"

namespace sluice::check {
namespace {

using Model = RingLayerModel;
using Session = RingLayerSession;

sluice_implementation backend() { return implementations_under_test().front(); }

double allowance(std::initializer_list<sluice_dtype> dtypes) {
  return allowance_of(1e-5, 2, dtypes);
}

class ReplayRingLayer : public ::testing::TestWithParam<Model> {};

/// Calls of up to M tokens a row, packed or not, with padding.
TEST_P(ReplayRingLayer, EveryCallMatchesTheReference) {
  const Model& m = GetParam();
  constexpr int64_t kSlots = 4, kCalls = 10;
  const int64_t M = std::min<int64_t>(4, m.L / 2);
  Session found(m, kSlots, backend()), truth(m, kSlots, SLUICE_IMPL_REFERENCE);
  Random random(3);
  for (uint64_t call = 0; call < kCalls; ++call) {
    const std::vector<int64_t> slots = {pick(&random, 2),
                                        chance(&random, 3) ? -1 : 2 + pick(&random, 2)};
    const bool packed = chance(&random, 2);
    const int64_t first = 1 + pick(&random, M), second = 1 + pick(&random, M);
    const std::vector<int64_t> offsets =
        packed ? std::vector<int64_t>{0, first, first + second} : std::vector<int64_t>{};
    const LayerTokens tokens = packed ? LayerTokens(m, 1, first + second + 1, 100 * call)
                                      : LayerTokens(m, 2, M, 100 * call);
    truth.copy(found);
    const Array expected = truth.run(tokens, slots, offsets, M);
    const Array out = found.run(tokens, slots, offsets, M);
    const std::string where = named("call ", call, ", ", found.kernel);
    const double all = allowance({m.io, m.key, m.delta});
    EXPECT_LE(distance(out, expected), all) << where;
    EXPECT_LE(distance(found.core, truth.core), all) << where;
    EXPECT_LE(distance(found.pool.values(), truth.pool.values()), allowance({m.state})) << where;
    EXPECT_LE(distance(found.conv.values(), truth.conv.values()), 0) << where;
    EXPECT_LE(distance(found.keys.values(), truth.keys.values()), all) << where;
    EXPECT_LE(distance(found.deltas.values(), truth.deltas.values()), all) << where;
    EXPECT_LE(distance(found.decays.values(), truth.decays.values()), 2e-6) << where;
    EXPECT_EQ(found.checkpoint, truth.checkpoint) << where;
    for (size_t n = 0; n < slots.size(); ++n) {
      const int64_t given = packed ? (n == 0 ? first : second) : M;
      if (slots[n] >= 0) found.accept(slots[n], 1 + pick(&random, given));
    }
  }
}

/// Drafts of T tokens with random acceptance against plain layer_decode of what was accepted, by
/// the float64 reference; without 16-bit numbers all of it is float32 accurate.
void expect_plain_decoding(const Model& model, int64_t T, sluice_implementation implementation) {
  Model m = model;
  m.io = m.state = m.key = m.delta = kF32;
  const int64_t rounds = T == 1 ? 30 : 16;
  const LayerTokens tokens(m, 2, T * rounds);
  Session ring(m, 2, implementation), plain(m, 2, SLUICE_IMPL_REFERENCE, true);
  Random random(7);
  int64_t done[2] = {0, 0}, rejected = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    LayerTokens drafts = tokens.part({0, 1}, 0, T);
    for (const int64_t n : {0, 1}) {
      const LayerTokens own = tokens.part({n}, done[n], T);
      std::copy(own.qkv.values.begin(), own.qkv.values.end(), &drafts.qkv(n, 0, 0));
      std::copy(own.z.values.begin(), own.z.values.end(), &drafts.z(n, 0, 0));
      std::copy(own.b.values.begin(), own.b.values.end(), &drafts.b(n, 0, 0));
      std::copy(own.a.values.begin(), own.a.values.end(), &drafts.a(n, 0, 0));
    }
    const Array out = ring.run(drafts, {0, 1});
    for (const int64_t n : {0, 1}) {
      // num_accepted counts from one; a position takes zero as well.
      const int64_t least = m.form == SLUICE_CONV_STATE_RING && T > 1 ? 0 : 1;
      const int64_t accepted = least + pick(&random, T + 1 - least);
      rejected += T - accepted;
      for (int64_t t = 0; t < accepted; ++t) {
        const Array one = plain.run(drafts.part({n}, t, 1), {n});
        EXPECT_LE(distance(take(take(out, 0, {n}), 1, {t}), one), 2e-5) << round << ", " << t;
      }
      ring.accept(n, accepted);
      done[n] += accepted;
    }
  }
  EXPECT_EQ(rejected > 0, T > 1);
}

TEST_P(ReplayRingLayer, PlainDecodingOverManyTurns) {
  expect_plain_decoding(GetParam(), 1, backend());
}

TEST_P(ReplayRingLayer, SpeculationEndsWherePlainDecodingDoes) {
  expect_plain_decoding(GetParam(), std::min<int64_t>(4, GetParam().L / 2), backend());
}

TEST(ReplayRingLayerReference, IsTheRecurrence) {
  for (const auto form : {SLUICE_CONV_STATE_RING, SLUICE_CONV_STATE_SHIFT}) {
    for (const int64_t T : {1, 3, 8}) {
      Model m{.name = "", .H = 2, .HV = 6, .K = 12, .V = 8};
      m.form = form;
      expect_plain_decoding(m, T, SLUICE_IMPL_REFERENCE);
    }
  }
}

TEST_P(ReplayRingLayer, BatchMatesDoNotMatter) {
  const Model& m = GetParam();
  constexpr int64_t kN = 3;
  Session together(m, kN, backend()), alone(m, kN, backend());
  for (uint64_t call = 0; call < 6; ++call) {
    const LayerTokens tokens(m, kN, 2, 50 * call);
    const Array all = together.run(tokens, range(0, kN));
    const Array one = alone.run(tokens.part({2}, 0, 2), {2});
    EXPECT_TRUE(same_bits(one, take(all, 0, {2}))) << call;
    EXPECT_TRUE(same_bits(take(alone.pool.values(), 0, {2}), take(together.pool.values(), 0, {2})));
    EXPECT_TRUE(
        same_bits(take(alone.deltas.values(), 0, {2}), take(together.deltas.values(), 0, {2})));
    for (int64_t n = 0; n < kN; ++n) {
      together.accept(n, n == 2 ? 2 : 1 + static_cast<int64_t>(call) % 2);
    }
    alone.accept(2, 2);
  }
}

std::vector<Model> models() {
  std::vector<Model> all = {{.name = "K64"}, {.name = "K128_r3", .HV = 3, .K = 128, .V = 128}};
  all.back().form = SLUICE_CONV_STATE_SHIFT;
  all.push_back({.name = "K128_vk_bfloat16", .H = 2, .HV = 4, .K = 128, .V = 96, .state = kBF16});
  all.back().layout = SLUICE_STATE_VK, all.back().key = all.back().delta = kBF16;
  all.back().io = kBF16, all.back().rounding = SLUICE_NORM_ROUND_HF;
  all.push_back({.name = "K128_kv_float16", .K = 128, .io = kF16, .state = kF16});
  all.back().form = SLUICE_CONV_STATE_SHIFT, all.back().has_core = false;
  all.push_back({.name = "K48_cyclic_L6", .H = 2, .HV = 4, .K = 48, .V = 36, .L = 6});
  all.back().head_map = SLUICE_HEAD_MAP_CYCLIC;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ReplayRingLayer, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
