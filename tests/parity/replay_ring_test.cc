// Measures recurrent_step with a replay ring: each call against the float64 reference on the same
// memory, and sessions against plain decoding of the accepted tokens, over many turns of the ring.
// Sessions of public calls at random (tokens, slots, padding, acceptance); every byte that a call
// may not write is compared after it.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parity/draw.hpp"
#include "parity/naming.hpp"
#include "parity/ring_judge.hpp"
#include "parity/ring_session.hpp"

namespace sluice::check {
namespace {

using Model = RingModel;
using Tokens = RingTokens;
using Options = RingOptions;
using Session = RingSession;

sluice_implementation backend() { return implementations_under_test().front(); }

double allowance(std::initializer_list<sluice_dtype> dtypes) {
  return allowance_of(4e-6, 1, dtypes);
}

class ReplayRing : public ::testing::TestWithParam<Model> {};

/// Calls of up to M tokens a row, packed or not, with padding, fresh rows and forced folds.
TEST_P(ReplayRing, EveryCallMatchesTheReference) {
  const Model& m = GetParam();
  constexpr int64_t kSlots = 4, kCalls = 14;
  const int64_t M = std::min<int64_t>(4, m.L / 2);
  Session found(m, kSlots), truth(m, kSlots, SLUICE_IMPL_REFERENCE);
  Random random(3);
  for (uint64_t call = 0; call < kCalls; ++call) {
    const SlotList slots = {pick(&random, 2), chance(&random, 3) ? -1 : 2 + pick(&random, 2)};
    Options options;
    options.always = chance(&random, 6);
    options.fresh = some_of(&random, 2, 8);
    const bool packed = chance(&random, 2);
    const int64_t first = pick(&random, M + 1), second = pick(&random, M + 1);
    if (packed) options.offsets = {0, first, first + second}, options.max_tokens = M;
    const Tokens tokens =
        packed ? Tokens(m, 1, first + second + 1, 100 * call) : Tokens(m, 2, M, 100 * call);
    truth.copy(found);
    const Array expected = truth.run(tokens, slots, options);
    const Array o = found.run(tokens, slots, options);
    const std::string where = named("call ", call, ", ", found.kernel);
    EXPECT_LE(distance(o, expected), allowance({m.io, m.key, m.delta})) << where;
    EXPECT_LE(distance(found.pool.values(), truth.pool.values()), allowance({m.state})) << where;
    EXPECT_LE(distance(found.keys.values(), truth.keys.values()), allowance({m.key})) << where;
    EXPECT_LE(distance(found.deltas.values(), truth.deltas.values()), allowance({m.delta}))
        << where;
    EXPECT_LE(distance(found.decays.values(), truth.decays.values()), 1e-6) << where;
    EXPECT_EQ(found.checkpoint, truth.checkpoint) << where;
    for (size_t n = 0; n < slots.size(); ++n) {
      const int64_t given = packed ? (n == 0 ? first : second) : M;
      if (slots[n] >= 0) found.accept(slots[n], pick(&random, given + 1));
    }
  }
}

/// Drafts of T tokens with random acceptance against the float64 recurrence of what was accepted;
/// T = 1 is plain decoding. Without 16-bit numbers all of it is float32 accurate.
void expect_plain_decoding(const Model& model, int64_t T, sluice_implementation implementation) {
  Model m = model;
  m.io = m.state = m.key = m.delta = kF32;
  const int64_t rounds = T == 1 ? 34 : 22;
  const Tokens tokens(m, 2, T * rounds);
  Session ring(m, 2, implementation), plain(m, 2, SLUICE_IMPL_REFERENCE);
  Random random(7);
  int64_t done[2] = {0, 0}, folds = 0, rejected = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    Tokens drafts = tokens.part({0, 1}, 0, T);
    for (const int64_t n : {0, 1}) {
      const Tokens own = tokens.part({n}, done[n], T);
      std::copy(own.q.values.begin(), own.q.values.end(), &drafts.q(n, 0, 0, 0));
      std::copy(own.k.values.begin(), own.k.values.end(), &drafts.k(n, 0, 0, 0));
      std::copy(own.v.values.begin(), own.v.values.end(), &drafts.v(n, 0, 0, 0));
      std::copy(own.gate.values.begin(), own.gate.values.end(), &drafts.gate(n, 0, 0));
      std::copy(own.beta.values.begin(), own.beta.values.end(), &drafts.beta(n, 0, 0));
    }
    const Array before = ring.pool.values();
    const std::vector<int64_t> checkpoints = ring.checkpoint;
    const Array o = ring.run(drafts, {0, 1});
    for (const int64_t n : {0, 1}) {
      const bool folded =
          ring.checkpoint[static_cast<size_t>(n)] != checkpoints[static_cast<size_t>(n)];
      folds += folded ? 1 : 0;
      EXPECT_TRUE(folded || same_bits(ring.states({n}), take(before, 0, {n}))) << round;
      const int64_t accepted = T == 1 ? 1 : pick(&random, T + 1);
      rejected += T - accepted;
      for (int64_t t = 0; t < accepted; ++t) {
        const Array one = plain.run(drafts.part({n}, t, 1), {n}, {}, true);
        EXPECT_LE(distance(take(take(o, 0, {n}), 1, {t}), one), 1e-5) << round << ", " << t;
      }
      ring.accept(n, accepted);
      done[n] += accepted;
    }
  }
  EXPECT_GE(folds, 4);
  EXPECT_EQ(rejected > 0, T > 1);
  Options all;
  all.always = true;
  ring.run(tokens.part({0, 1}, 0, 0), {0, 1}, all);
  EXPECT_LE(distance(ring.pool.values(), plain.pool.values()), 1e-5);
  for (const int64_t n : {0, 1}) EXPECT_EQ(ring.live(n), 0);
}

TEST_P(ReplayRing, PlainDecodingOverManyTurns) { expect_plain_decoding(GetParam(), 1, backend()); }

TEST_P(ReplayRing, SpeculationEndsWherePlainDecodingDoes) {
  expect_plain_decoding(GetParam(), std::min<int64_t>(4, GetParam().L / 2), backend());
}

TEST(ReplayRingReference, IsTheRecurrence) {
  for (const int64_t T : {1, 3, 8}) {
    expect_plain_decoding({.name = "", .H = 2, .HV = 6, .K = 12, .V = 8}, T, SLUICE_IMPL_REFERENCE);
  }
}

/// SlotList that no row has stay as they are; of the others all entries but the call's, and the
/// state where nothing folds.
TEST_P(ReplayRing, TouchesNothingElse) {
  const Model& m = GetParam();
  constexpr int64_t kSlots = 7;
  const int64_t M = std::min<int64_t>(3, m.L / 2);
  Session session(m, kSlots);
  Random random(11);
  for (uint64_t call = 0; call < 9; ++call) {
    SlotList slots = range(0, kSlots);
    for (size_t i = slots.size(); i > 1; --i) {
      std::swap(slots[i - 1], slots[static_cast<size_t>(pick(&random, static_cast<int64_t>(i)))]);
    }
    slots.resize(4);
    for (int64_t& slot : slots) slot = chance(&random, 3) ? -1 - pick(&random, 9) : slot;
    const Array pool = session.pool.values(), keys = session.keys.values(),
                deltas = session.deltas.values(), decays = session.decays.values();
    const std::vector<int64_t> checkpoints = session.checkpoint;
    const Array o = session.run(Tokens(m, 4, M, 50 * call), slots);
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const auto row = std::find(slots.begin(), slots.end(), slot);
      const auto s = static_cast<size_t>(slot);
      if (row == slots.end() || session.checkpoint[s] == checkpoints[s]) {
        EXPECT_TRUE(same_bits(session.states({slot}), take(pool, 0, {slot}))) << call;
      }
      SlotList kept;
      for (int64_t e = 0; e < m.L; ++e) {
        const int64_t token = (e - session.position[s] % m.L + m.L) % m.L;
        if (row == slots.end() || token >= M) kept.push_back(e);
      }
      const auto same = [&](const TestTensor& now, const Array& before) {
        return same_bits(take(take(now.values(), 0, {slot}), 1, kept),
                         take(take(before, 0, {slot}), 1, kept));
      };
      EXPECT_TRUE(same(session.keys, keys) && same(session.deltas, deltas) &&
                  same(session.decays, decays))
          << call << ", slot " << slot;
    }
    for (int64_t n = 0; n < 4; ++n) {
      const Array rows = take(o, 0, {n});
      const bool zero =
          std::all_of(rows.values.begin(), rows.values.end(), [](double x) { return x == 0; });
      EXPECT_EQ(zero, slots[static_cast<size_t>(n)] < 0);
      if (!zero) session.accept(slots[static_cast<size_t>(n)], pick(&random, M + 1));
    }
  }
}

TEST_P(ReplayRing, BatchMatesDoNotMatter) {
  const Model& m = GetParam();
  constexpr int64_t kN = 5;
  Session together(m, kN), alone(m, kN);
  for (uint64_t call = 0; call < 9; ++call) {
    const Tokens tokens(m, kN, 2, 50 * call);
    const Array all = together.run(tokens, range(0, kN));
    const Array one = alone.run(tokens.part({3}, 0, 2), {3});
    EXPECT_TRUE(same_bits(one, take(all, 0, {3}))) << call;
    EXPECT_TRUE(same_bits(alone.states({3}), together.states({3}))) << call;
    EXPECT_TRUE(
        same_bits(take(alone.deltas.values(), 0, {3}), take(together.deltas.values(), 0, {3})));
    for (int64_t n = 0; n < kN; ++n)
      together.accept(n, n == 3 ? 2 : static_cast<int64_t>(call) % 3);
    alone.accept(3, 2);
  }
}

/// A gate of -inf forgets everything before it, and nothing becomes NaN; a NaN gate stays in its
/// head, a NaN of v in its column.
TEST_P(ReplayRing, WhatIsNotFiniteStaysWhereItIs) {
  const Model& m = GetParam();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Session clean(m, 2), forgetful(m, 2), spoilt(m, 2);
  for (uint64_t call = 0; call < 6; ++call) {
    Tokens tokens(m, 2, 2, 50 * call);
    const Array expected = clean.run(tokens, {0, 1});
    Tokens forgets = tokens;
    if (call == 3) forgets.gate(1, 1, 0) = -std::numeric_limits<double>::infinity();
    const Array forgotten = forgetful.run(forgets, {0, 1});
    if (call == 2) tokens.gate(1, 0, m.HV - 1) = kNan, tokens.v(0, 1, 0, 3) = kNan;
    const Array found = spoilt.run(tokens, {0, 1});
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t h = 0; h < m.HV; ++h) {
        for (int64_t j = 0; j < m.V; ++j) {
          EXPECT_TRUE(std::isfinite(forgotten(1, t, h, j)));
          EXPECT_TRUE(h == 0 || forgotten(1, t, h, j) == expected(1, t, h, j));
          EXPECT_TRUE((h == 0 && j == 3) || found(0, t, h, j) == expected(0, t, h, j));
          EXPECT_TRUE(h == m.HV - 1 || found(1, t, h, j) == expected(1, t, h, j));
        }
      }
    }
    EXPECT_EQ(std::isnan(found(1, 1, m.HV - 1, 0)), call >= 2);
    for (Session* session : {&clean, &forgetful, &spoilt})
      session->accept(0, 2), session->accept(1, 1);
  }
}

/// Of the GPU, where nobody checks cursors: they are clamped.
TEST_P(ReplayRing, MalformedCursorsReachNothing) {
  if (backend() != SLUICE_IMPL_CUDA) GTEST_SKIP() << "host contents are checked";
  const Model& m = GetParam();
  Session session(m, 6);
  session.position = {-5, 3, INT32_MAX, 1 << 30, 0, 7};
  session.checkpoint = {4, 900, INT32_MIN, -1, INT32_MAX, 7};
  const Array before = session.pool.values();
  session.run(Tokens(m, 6, 2), {0, 1, 2, 3, 4, 1 << 20});
  EXPECT_TRUE(same_bits(session.states({5}), take(before, 0, {5})));
}

/// So many heads that each is a CTA of its own, of which models have a kernel of their own.
TEST(ReplayRingOfManySequences, EveryCallMatchesTheReference) {
  for (const sluice_dtype dtype : {kF32, kBF16}) {
    Model m{.name = "", .K = 128, .V = 128, .L = 8, .io = kBF16, .state = dtype};
    m.key = m.delta = dtype, m.raw = true;
    const SlotList slots = range(0, 56);
    Session found(m, 56), truth(m, 56, SLUICE_IMPL_REFERENCE);
    for (uint64_t call = 0; call < 3; ++call) {
      const Tokens tokens(m, 56, 2 + static_cast<int64_t>(call % 2), 100 * call);
      truth.copy(found);
      const Array expected = truth.run(tokens, slots);
      const Array o = found.run(tokens, slots);
      const std::string where = named("call ", call, ", ", found.kernel);
      EXPECT_LE(distance(o, expected), allowance({m.io, m.key, m.delta})) << where;
      EXPECT_LE(distance(found.pool.values(), truth.pool.values()), allowance({dtype})) << where;
      EXPECT_LE(distance(found.keys.values(), truth.keys.values()), allowance({dtype})) << where;
      EXPECT_LE(distance(found.deltas.values(), truth.deltas.values()), allowance({dtype}))
          << where;
      EXPECT_EQ(found.checkpoint, truth.checkpoint) << where;
      for (const int64_t slot : slots) found.accept(slot, 1 + slot % 2);
    }
  }
}

std::vector<Model> models() {
  std::vector<Model> all = {{.name = "K64"}, {.name = "K128_r3", .HV = 3, .K = 128}};
  all.push_back({.name = "K128_vk_bfloat16", .H = 2, .K = 128, .V = 96, .state = kBF16});
  all.back().layout = SLUICE_STATE_VK, all.back().key = all.back().delta = kBF16;
  all.push_back({.name = "K128_kv_bfloat16", .K = 128, .io = kBF16, .state = kBF16});
  all.back().delta = kBF16;
  all.push_back({.name = "K48_vk_cyclic_L6", .H = 2, .HV = 4, .K = 48, .V = 36, .L = 6});
  all.back().layout = SLUICE_STATE_VK, all.back().head_map = SLUICE_HEAD_MAP_CYCLIC;
  all.push_back({.name = "simple_gla_L9_float16", .K = 20, .V = 12, .L = 9, .key = kF16});
  all.back().rule = SLUICE_RULE_LINEAR_ATTENTION, all.back().state = kF16;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ReplayRing, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
