// Measures rules of the reference and the CPU backend by a model of the tests' own: which column of
// slots a step starts from, when a replay ring folds, which checkpoints are stored, what gates are.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/view_rules.hpp"
#include "sluice/sluice.hpp"

namespace sluice::testing {
namespace {

constexpr int64_t kD = 4;
constexpr Implementation kBackends[] = {Implementation::kCpu, Implementation::kReference,
                                        Implementation::kReferenceChunked};

template <class Args, class Call>
void run(const Args& args, Call call) {
  HostWorkspace memory;
  const Status status = call(args, memory.reserve(workspace_size(args).value.bytes), nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
}

/// A token that changes no state: k = 0, so that o shows the state as it was.
struct Step {
  std::vector<float> q = std::vector<float>(kD), zeros = std::vector<float>(16 * kD);
  std::vector<float> o = std::vector<float>(kD), pool;
  RecurrentStepArgs args;

  explicit Step(int64_t slots) : pool(static_cast<size_t>(slots * kD * kD)) {
    q[0] = 1;
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<float>(i / (kD * kD));
    args.q = TensorView(q.data(), {1, 1, 1, kD});
    args.k = TensorView(zeros.data(), {1, 1, 1, kD});
    args.v = TensorView(zeros.data(), {1, 1, 1, kD});
    args.o = TensorView(o.data(), {1, 1, 1, kD});
    args.state.initial = TensorView(pool.data(), {slots, 1, kD, kD});
    args.scale = 1.0;
  }
};

TEST(SharedRules, TheStartColumnIsTheLastAcceptedOne) {
  const int32_t slots[] = {3, 1, 4};  // W = 3 columns
  for (const Implementation implementation : kBackends) {
    for (int32_t accepted = -2; accepted <= 9; ++accepted) {
      Step step(5);
      step.args.implementation = implementation;
      step.args.state.read_slots = TensorView(slots, {1, 3});
      step.args.num_accepted = TensorView(&accepted, {1});
      step.args.state_writes = StateWrites::kNone;
      run(step.args, recurrent_step);
      // Columns are counted from one, none accepted is the first, more than there are the last.
      const int column = accepted < 1 ? 0 : accepted > 3 ? 2 : accepted - 1;
      EXPECT_EQ(step.o[0], static_cast<float>(slots[column])) << accepted << " accepted";
    }
  }
}

TEST(SharedRules, ARingFoldsWhereTheNextCallMightNotFit) {
  constexpr int64_t kEntries = 8;
  for (const Implementation implementation : kBackends) {
    for (int32_t kept = 0; kept <= kEntries - 1; ++kept) {
      Step step(1);
      std::vector<float> keys(kEntries * kD), deltas(kEntries * kD), decays(kEntries, 1.0f);
      const int32_t checkpoint = 11, position = checkpoint + kept;
      int32_t next = -1;
      step.args.implementation = implementation;
      step.args.ring.k = TensorView(keys.data(), {1, kEntries, 1, kD});
      step.args.ring.delta = TensorView(deltas.data(), {1, kEntries, 1, kD});
      step.args.ring.decay = TensorView(decays.data(), {1, kEntries, 1});
      step.args.ring.position = TensorView(&position, {1});
      step.args.ring.checkpoint = TensorView(&checkpoint, {1});
      step.args.ring.next_checkpoint = TensorView(&next, {1});
      run(step.args, recurrent_step);
      // This token is one entry more, and the next call's another one.
      const bool fits = kept + 1 + 1 <= kEntries;
      EXPECT_EQ(next, fits ? checkpoint : position) << kept << " entries kept";
    }
  }
}

TEST(SharedRules, CheckpointsPastTheLastColumnAreNotStored) {
  constexpr int64_t kT = 256, kSlots = 6;
  const std::vector<float> ones(kT * kD, 0.5f);
  // Two columns a sequence; slots that would be valid follow in memory.
  const int32_t slots[] = {4, 2, 0, 1, 3, 5};
  for (const Implementation implementation : kBackends) {
    for (const bool key_wise : {false, true}) {
      std::vector<float> o(kT * kD), pool(kSlots * kD * kD, -7.0f);
      const std::vector<float> gates(kT * kD, -0.5f);
      ChunkForwardArgs args;
      args.implementation = implementation;
      args.q = args.k = args.v = TensorView(ones.data(), {1, kT, 1, kD});
      args.o = TensorView(o.data(), {1, kT, 1, kD});
      if (key_wise) args.gate = TensorView(gates.data(), {1, kT, 1, kD});
      args.checkpoints = TensorView(pool.data(), {kSlots, 1, kD, kD});
      args.checkpoint_slots = TensorView(slots, {1, 2});
      args.checkpoint_every = 64;
      run(args, chunk_forward);
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        const auto first = pool.begin() + slot * kD * kD;
        const bool kept = std::all_of(first, first + kD * kD, [](float x) { return x == -7.0f; });
        EXPECT_EQ(kept, slot != 4 && slot != 2) << "slot " << slot << ", key-wise " << key_wise;
      }
    }
  }
}

TEST(SharedRules, RawGatesAreSoftplusAtAnyArgument) {
  const int32_t slot = 1;  // of ones
  const float A_log = -3.0f, dt_bias = 0.0f;
  for (const Implementation implementation : kBackends) {
    for (const float gate : {-30.0f, -1.0f, 0.0f, 3.0f, 5.5f, 8.0f, 19.0f, 21.0f, 60.0f}) {
      Step step(2);
      step.args.implementation = implementation;
      step.args.state.read_slots = TensorView(&slot, {1});
      step.args.gate = TensorView(&gate, {1, 1, 1});
      step.args.A_log = TensorView(&A_log, {1}), step.args.dt_bias = TensorView(&dt_bias, {1});
      step.args.gate_space = GateSpace::kRaw;
      run(step.args, recurrent_step);
      const double decay = std::exp(-std::exp(-3.0) * std::log1p(std::exp(double{gate})));
      EXPECT_NEAR(step.o[0], decay, 2e-6) << "gate " << gate;
    }
  }
}

TEST(SharedRules, ALinearGateOfZeroIsTheSmallestLogGate) {
  const std::vector<float> gates = {1.0f, 0.0f, 0.5f};
  for (const Implementation implementation : {Implementation::kCpu, Implementation::kReference}) {
    std::vector<float> sums(3);
    ChunkStageArgs args;
    args.implementation = implementation;
    args.gate = TensorView(gates.data(), {1, 3, 1});
    args.g_cumsum = TensorView(sums.data(), {1, 3, 1});
    args.gate_space = GateSpace::kLinear;
    run(args, chunk_stage);
    EXPECT_EQ(sums[0], 0.0f);
    EXPECT_EQ(sums[1], -128.0f);
    EXPECT_NEAR(sums[2], -128.0 + std::log(0.5), 1e-5);
  }
}

TEST(SharedRules, StridesOfTheLeastIntegerAreRefused) {
  const std::vector<float> memory(64);
  ChunkForwardArgs args;
  args.q = args.k = args.v = TensorView(memory.data(), {1, 2, 1, kD});
  args.o = TensorView(memory.data(), {1, 2, 1, kD});
  args.q.stride[1] = INT64_MIN;
  EXPECT_STREQ(workspace_size(args).status.message,
               "chunk_forward: q.shape[1] = 2 with stride -9223372036854775808, expected a view of "
               "less than 2^55 elements");
}

TEST(SharedRules, RowsOfTwoElementsAreContiguousToo) {
  const std::vector<float> memory(64);
  std::vector<float> o(64);
  ChunkForwardArgs args;
  args.q = args.k = args.v = TensorView(memory.data(), {1, 2, 1, 2});
  args.o = TensorView(o.data(), {1, 2, 1, 2});
  args.q.stride[3] = 2;
  EXPECT_STREQ(workspace_size(args).status.message,
               "chunk_forward: q.stride[3] = 2, expected 1 (contiguous last dimension)");
}

TEST(SharedRules, StridesOfExtentOneDoNotMatter) {
  const float number = 0;
  TensorView view(&number, kFloat32, {1, 3, 1, 4}, {-1, 400, int64_t{1} << 40, 1});
  core::settle_strides(&view);
  EXPECT_EQ(view.stride[0], 1200);
  EXPECT_EQ(view.stride[1], 400);
  EXPECT_EQ(view.stride[2], 4);
  EXPECT_EQ(view.stride[3], 1);
}

}  // namespace
}  // namespace sluice::testing
