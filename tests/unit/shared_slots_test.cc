// Measures which slots states come from and go to, and what a replay ring holds, by a model of the
// tests' own: reference and CPU backend have these rules from one source.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::testing {
namespace {

constexpr int64_t kD = 4, kState = kD * kD;
constexpr Implementation kBackends[] = {Implementation::kCpu, Implementation::kReference,
                                        Implementation::kReferenceChunked};

template <class Args, class Call>
void run(const Args& args, Call call) {
  HostWorkspace memory;
  const Status status = call(args, memory.reserve(workspace_size(args).value.bytes), nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
}

/// One token of each of N sequences that changes no state: k = 0. o[n,0] is state[0,0].
struct Tokens {
  std::vector<float> q, zeros, o;
  RecurrentStepArgs args;

  explicit Tokens(int64_t N)
      : q(static_cast<size_t>(N * kD), 1.0f), zeros(q.size()), o(q.size(), -1.0f) {
    args.q = TensorView(q.data(), {N, 1, 1, kD});
    args.k = args.v = TensorView(zeros.data(), {N, 1, 1, kD});
    args.o = TensorView(o.data(), {N, 1, 1, kD});
    args.scale = 1.0;
  }
};

/// Slot s of a pool holds s + 1 in its first number, zeros elsewhere.
std::vector<float> numbered(int64_t slots) {
  std::vector<float> pool(static_cast<size_t>(slots * kState));
  for (int64_t slot = 0; slot < slots; ++slot) {
    pool[static_cast<size_t>(slot * kState)] = static_cast<float>(slot + 1);
  }
  return pool;
}

// Rows of a batch whose slots below 2 are padding.
constexpr int64_t kN = 6, kSlots = 8, kPadBelow = 2;
constexpr int kRead[kN] = {3, 1, 2, 7, 0, 4};
constexpr int kWrite[kN] = {5, 6, 1, 2, 3, -1};
constexpr bool kStarts[kN] = {true, true, false, true, true, true};

/// Every second entry.
template <class Entry>
TensorView strided(const std::vector<Entry>& entries) {
  return TensorView(entries.data(), DTypeOf<Entry>::value, {kN}, {2});
}

template <class Index>
void expect_slots(Implementation implementation) {
  std::vector<Index> read(2 * kN, 6), write(2 * kN, 7);
  std::vector<uint8_t> starts(2 * kN);
  for (size_t n = 0; n < kN; ++n) {
    read[2 * n] = static_cast<Index>(kRead[n]), write[2 * n] = static_cast<Index>(kWrite[n]);
    starts[2 * n] = kStarts[n] ? 1 : 0, starts[2 * n + 1] = kStarts[n] ? 0 : 1;
  }
  std::vector<float> from = numbered(kSlots), to(from.size(), -7.0f);
  Tokens tokens(kN);
  RecurrentStepArgs& args = tokens.args;
  args.implementation = implementation;
  args.state.initial = TensorView(from.data(), {kSlots, 1, kD, kD});
  args.state.final = TensorView(to.data(), {kSlots, 1, kD, kD});
  args.state.read_slots = strided(read);
  args.state.write_slots = strided(write);
  args.state.has_initial_state = strided(starts);
  args.state.pad_below = kPadBelow;
  run(args, recurrent_step);
  std::vector<float> written(kSlots, -7.0f);
  for (size_t n = 0; n < kN; ++n) {
    const bool padded = kRead[n] < kPadBelow;
    const float state = padded || !kStarts[n] ? 0.0f : static_cast<float>(kRead[n] + 1);
    EXPECT_EQ(tokens.o[n * kD], state) << "sequence " << n;
    if (!padded && kWrite[n] >= kPadBelow) written[static_cast<size_t>(kWrite[n])] = state;
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(to[slot * kState], written[slot]) << "slot " << slot;
  }
}

TEST(SharedSlots, PadsFlagsAndStrides) {
  for (const Implementation implementation : kBackends) {
    expect_slots<int32_t>(implementation);
    expect_slots<int64_t>(implementation);
  }
}

TEST(SharedSlots, EachTokensStateHasItsSlot) {
  constexpr int64_t kT = 3;
  const int32_t read = 3, write[kT] = {5, 1, 6};  // the second token's is padding
  for (const Implementation implementation : kBackends) {
    const std::vector<float> from = numbered(kSlots), zeros(kT * kD);
    std::vector<float> to(from.size(), -7.0f), o(kT * kD);
    RecurrentStepArgs args;
    args.implementation = implementation;
    args.q = args.k = args.v = TensorView(zeros.data(), {1, kT, 1, kD});
    args.o = TensorView(o.data(), {1, kT, 1, kD});
    args.state.initial = TensorView(from.data(), {kSlots, 1, kD, kD});
    args.state.final = TensorView(to.data(), {kSlots, 1, kD, kD});
    args.state.read_slots = TensorView(&read, {1});
    args.state.write_slots = TensorView(write, {1, kT});
    args.state.pad_below = kPadBelow;
    args.state_writes = StateWrites::kPerToken;
    run(args, recurrent_step);
    for (size_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(to[slot * kState], slot == 5 || slot == 6 ? 4.0f : -7.0f) << "slot " << slot;
    }
  }
}

/// A thread has many sequences of one head in turn.
TEST(SharedSlots, ASequencesRowsAreItsOwn) {
  constexpr int64_t kMany = 64;
  for (const Implementation implementation : kBackends) {
    Tokens tokens(kMany);
    std::vector<float> pool(kMany * kState, 1.0f);
    const std::vector<float> gates(kMany, -std::log(2.0f));
    for (size_t i = 0; i < tokens.q.size(); ++i) tokens.q[i] = static_cast<float>(i / kD + 1);
    tokens.args.implementation = implementation;
    tokens.args.gate = TensorView(gates.data(), {kMany, 1, 1});
    tokens.args.state.initial = TensorView(pool.data(), {kMany, 1, kD, kD});
    run(tokens.args, recurrent_step);
    for (size_t n = 0; n < kMany; ++n) {
      EXPECT_EQ(tokens.o[n * kD], 2.0f * static_cast<float>(n + 1)) << "sequence " << n;
    }
  }
}

/// A ring of eight entries in the second of two slots, `kept` of them live at position `position`.
struct Ring {
  static constexpr int64_t kEntries = 8;
  std::vector<float> pool = numbered(2), keys = std::vector<float>(2 * kEntries * kD),
                     deltas = keys, decays = std::vector<float>(2 * kEntries);
  const int32_t slot = 1, position, checkpoint;
  int32_t next = -1;

  Ring(int32_t at, int32_t kept) : position(at), checkpoint(at - kept) {
    for (size_t i = 0; i < 2 * kEntries; ++i) {
      keys[i * kD] = 1.0f;
      deltas[i * kD] = static_cast<float>(10 * (i + 1));
      decays[i] = i % 2 == 0 ? 0.5f : 0.25f;
    }
  }

  void lend(RecurrentStepArgs* args) {
    args->state.initial = TensorView(pool.data(), {2, 1, kD, kD});
    args->state.read_slots = TensorView(&slot, {1});
    args->ring.k = TensorView(keys.data(), {2, kEntries, 1, kD});
    args->ring.delta = TensorView(deltas.data(), {2, kEntries, 1, kD});
    args->ring.decay = TensorView(decays.data(), {2, kEntries, 1});
    args->ring.position = TensorView(&position, {1});
    args->ring.checkpoint = TensorView(&checkpoint, {1});
    args->ring.next_checkpoint = TensorView(&next, {1});
  }

  /// state[0,0] after the live entries: the oldest first, each entry at its number mod 8.
  float replayed() const {
    float state = pool[kState];
    for (int32_t number = checkpoint; number < position; ++number) {
      const auto entry = static_cast<size_t>(kEntries + number % kEntries);
      state = decays[entry] * state + deltas[entry * kD];
    }
    return state;
  }
};

void expect_replay(Implementation implementation, int32_t kept, bool starts) {
  Ring ring(13, kept);
  const float before = ring.pool[kState], replayed = starts ? ring.replayed() : 0.0f;
  const uint8_t flag = starts ? 1 : 0;
  Tokens tokens(1);
  tokens.args.implementation = implementation;
  ring.lend(&tokens.args);
  tokens.args.state.has_initial_state = TensorView(&flag, {1});
  run(tokens.args, recurrent_step);
  const bool folds = !starts || kept + 2 > Ring::kEntries;
  EXPECT_EQ(tokens.o[0], replayed) << kept << " entries kept";
  EXPECT_EQ(ring.pool[kState], folds ? replayed : before) << kept << " entries kept";
  EXPECT_EQ(ring.next, folds ? ring.position : ring.checkpoint) << kept << " entries kept";
  EXPECT_EQ(ring.pool[0], 1.0f) << "another slot";
  // The token's entry: no key, no value, no decay.
  const size_t entry = Ring::kEntries + 13 % Ring::kEntries;
  EXPECT_EQ(ring.keys[entry * kD], 0.0f);
  EXPECT_EQ(ring.decays[entry], 1.0f);
}

TEST(SharedSlots, ARingIsReplayedFromItsOldestEntry) {
  for (const Implementation implementation : kBackends) {
    for (int32_t kept = 0; kept < Ring::kEntries; ++kept) {
      expect_replay(implementation, kept, true);
      expect_replay(implementation, kept, false);
    }
  }
}

/// A ring that begins empty takes `tokens` tokens in calls of `together` each; returns all of o.
std::vector<float> through_ring(Implementation implementation, int64_t tokens, int64_t together) {
  constexpr int64_t kEntries = 8;
  constexpr uint16_t kZero = 0;
  std::vector<float> pool = numbered(1), q(static_cast<size_t>(tokens * kD)), k(q), v(q), o(q);
  std::vector<float> keys(kEntries * kD), decays(kEntries);
  std::vector<uint16_t> deltas(kEntries * kD, kZero);
  for (size_t i = 0; i < q.size(); ++i) {
    // Values that bfloat16 does not have.
    q[i] = 1.0f, k[i] = 0.25f, v[i] = 1.0f / static_cast<float>(i + 3);
  }
  for (int64_t first = 0; first < tokens; first += together) {
    const auto position = static_cast<int32_t>(first);
    const int32_t slot = 0, checkpoint = 0;
    int32_t next = -1;
    RecurrentStepArgs args;
    const auto rows = [&](std::vector<float>& memory) {
      return TensorView(memory.data() + first * kD, {1, together, 1, kD});
    };
    args.implementation = implementation;
    args.q = rows(q), args.k = rows(k), args.v = rows(v), args.o = rows(o);
    args.state.initial = TensorView(pool.data(), {1, 1, kD, kD});
    args.state.read_slots = TensorView(&slot, {1});
    args.ring.k = TensorView(keys.data(), {1, kEntries, 1, kD});
    args.ring.delta = TensorView(deltas.data(), kBFloat16, {1, kEntries, 1, kD});
    args.ring.decay = TensorView(decays.data(), {1, kEntries, 1});
    args.ring.position = TensorView(&position, {1});
    args.ring.checkpoint = TensorView(&checkpoint, {1});
    args.ring.next_checkpoint = TensorView(&next, {1});
    run(args, recurrent_step);
  }
  return o;
}

TEST(SharedSlots, TokensOfOneCallSeeTheEntriesThatTheNextCallSees) {
  for (const Implementation implementation : {Implementation::kCpu, Implementation::kReference}) {
    EXPECT_EQ(through_ring(implementation, 3, 3), through_ring(implementation, 3, 1));
  }
}

/// A layer's slots below `pad_below` are padding for its convolution too.
TEST(SharedSlots, ALayersPadsAreThoseOfItsConvolution) {
  constexpr int64_t kRows = 2, kPool = 3, kChannels = 3 * kD, kWidth = 4;
  const int32_t slots[] = {1, 2};
  for (const Implementation implementation : kBackends) {
    for (const bool decodes : {false, true}) {
      std::vector<float> qkv(kRows * kChannels, 1.0f), z(kRows * kD, 1.0f), b(kRows), a(b), out(z);
      std::vector<float> weight(kChannels * kWidth, 0.25f), norm(kD, 1.0f), states(kPool * kState);
      std::vector<float> columns(kPool * kChannels * (kWidth - 1), -7.0f);
      const float A_log = 0.0f, dt_bias = 0.0f;
      LayerArgs args;
      args.implementation = implementation;
      args.qkv = TensorView(qkv.data(), {kRows, 1, kChannels});
      args.z = TensorView(z.data(), {kRows, 1, kD});
      args.b = TensorView(b.data(), {kRows, 1, 1}), args.a = TensorView(a.data(), {kRows, 1, 1});
      args.conv_weight = TensorView(weight.data(), {kChannels, kWidth});
      args.A_log = TensorView(&A_log, {1}), args.dt_bias = TensorView(&dt_bias, {1});
      args.norm_weight = TensorView(norm.data(), {kD});
      args.out = TensorView(out.data(), {kRows, 1, 1, kD});
      args.conv_initial = args.conv_final =
          TensorView(columns.data(), {kPool, kChannels, kWidth - 1});
      args.state.initial = args.state.final = TensorView(states.data(), {kPool, 1, kD, kD});
      args.state.read_slots = args.state.write_slots = TensorView(slots, {kRows});
      args.state.pad_below = 2;
      args.num_k_heads = args.num_v_heads = 1, args.head_k_dim = args.head_v_dim = kD;
      HostWorkspace memory;
      const auto size = decodes ? layer_decode_workspace(args) : layer_prefill_workspace(args);
      const Workspace workspace = memory.reserve(size.value.bytes);
      const Status status = decodes ? layer_decode(args, workspace, nullptr)
                                    : layer_prefill(args, workspace, nullptr);
      ASSERT_TRUE(status.ok()) << status.message;
      for (size_t slot = 0; slot < kPool; ++slot) {
        const float newest = columns[(slot + 1) * kChannels * (kWidth - 1) - 1];
        EXPECT_EQ(newest, slot == 2 ? 1.0f : -7.0f) << "slot " << slot;
      }
    }
  }
}

TEST(SharedSlots, PositionsOfARingAreNotCut) {
  constexpr int64_t kL = 3;
  const std::vector<float> weight = {0, 0, 0, 1};
  const int64_t position = (int64_t{1} << 40) + 1;  // 2 mod 3; its lower 32 bits are 1 mod 3
  for (const Implementation implementation : kBackends) {
    const float x = 5;
    float out = 0;
    std::vector<float> state = {1, 2, 3};
    CausalConv1dArgs args;
    args.implementation = implementation;
    args.x = TensorView(&x, {1, 1, 1});
    args.weight = TensorView(weight.data(), {1, 4});
    args.out = TensorView(&out, {1, 1, 1});
    args.state.initial = args.state.final = TensorView(state.data(), {1, 1, kL});
    args.state.form = ConvStateForm::kRing;
    args.state.ring_position = TensorView(&position, {1});
    run(args, causal_conv1d);
    EXPECT_EQ(state, (std::vector<float>{1, 2, 5}));
  }
}

}  // namespace
}  // namespace sluice::testing
