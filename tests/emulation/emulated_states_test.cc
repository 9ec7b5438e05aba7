// Measures which states an emulated prefill reads and writes, by a model of the tests' own: strided
// flags, and checkpoints past the last column of their slots.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kD = 64, kState = kD * kD;
constexpr uint16_t kOne = 0x3f80;  // bfloat16

template <class T>
TensorView on_gpu(const std::vector<T>& memory, DType dtype, std::initializer_list<int64_t> shape) {
  return TensorView(memory.data(), dtype, shape, cuda_device());
}

/// Rows of ones with one head; `keys` is what k holds.
struct Prefill {
  std::vector<uint16_t> ones, keys, o;
  ChunkForwardArgs args;

  Prefill(int64_t B, int64_t T, uint16_t key, Rule rule)
      : ones(static_cast<size_t>(B * T * kD), kOne), keys(ones.size(), key), o(ones.size()) {
    args.q = args.v = on_gpu(ones, kBFloat16, {B, T, 1, kD});
    args.k = on_gpu(keys, kBFloat16, {B, T, 1, kD});
    args.o = on_gpu(o, kBFloat16, {B, T, 1, kD});
    args.rule = rule;
    args.implementation = Implementation::kCuda;
  }

  void run() {
    HostWorkspace memory;
    const Status status =
        chunk_forward(args, memory.reserve(workspace_size(args).value.bytes), nullptr);
    ASSERT_TRUE(status.ok()) << status.message;
  }
};

class EmulatedStates : public ::testing::TestWithParam<Rule> {};

TEST_P(EmulatedStates, CheckpointsPastTheLastColumnAreNotStored) {
  constexpr int64_t kSlots = 6;
  Prefill prefill(1, 256, 0x3c00, GetParam());
  std::vector<float> pool(kSlots * kState, -7.0f);
  // Two columns; slots that would be valid follow in memory.
  const std::vector<int32_t> slots = {4, 2, 0, 1, 3, 5};
  prefill.args.checkpoints = on_gpu(pool, kFloat32, {kSlots, 1, kD, kD});
  prefill.args.checkpoint_slots = on_gpu(slots, kInt32, {1, 2});
  prefill.args.checkpoint_every = 64;
  prefill.run();
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    const auto first = pool.begin() + slot * kState;
    const bool kept = std::all_of(first, first + kState, [](float x) { return x == -7.0f; });
    EXPECT_EQ(kept, slot != 4 && slot != 2) << "slot " << slot;
  }
}

TEST_P(EmulatedStates, APartOfAChunkIsNoCheckpoint) {
  Prefill prefill(1, 100, 0x3c00, GetParam());
  std::vector<float> pool(4 * kState, -7.0f);
  const std::vector<int32_t> slots = {3, 2};
  prefill.args.checkpoints = on_gpu(pool, kFloat32, {4, 1, kD, kD});
  prefill.args.checkpoint_slots = on_gpu(slots, kInt32, {1, 2});
  prefill.args.checkpoint_every = 64;
  prefill.run();
  EXPECT_NE(pool[3 * kState], -7.0f);
  EXPECT_EQ(pool[2 * kState], -7.0f);
}

TEST_P(EmulatedStates, PadsAreNotWritten) {
  constexpr int64_t kN = 4;
  Prefill prefill(kN, 64, 0x3c00, GetParam());
  std::vector<float> initial(6 * kState, 1.0f), final(7 * kState, -7.0f), kept(final);
  // Slots below 2 are padding: nothing is read for the second sequence and written for the third. Slot
  // 6, past the pool, is as good as padding.
  const std::vector<int32_t> read = {2, 1, 3, 4}, write = {5, 4, 1, 6}, checkpoints = {2, 3, 4, 1};
  prefill.args.state.initial = on_gpu(initial, kFloat32, {6, 1, kD, kD});
  prefill.args.state.final = on_gpu(final, kFloat32, {6, 1, kD, kD});
  prefill.args.state.read_slots = on_gpu(read, kInt32, {kN});
  prefill.args.state.write_slots = on_gpu(write, kInt32, {kN});
  prefill.args.state.pad_below = 2;
  prefill.args.checkpoints = on_gpu(kept, kFloat32, {6, 1, kD, kD});
  prefill.args.checkpoint_slots = on_gpu(checkpoints, kInt32, {kN, 1});
  prefill.args.checkpoint_every = 64;
  prefill.run();
  for (size_t slot = 0; slot < 7; ++slot) {
    EXPECT_EQ(final[slot * kState] != -7.0f, slot == 5) << "slot " << slot;
    EXPECT_EQ(kept[slot * kState] != -7.0f, slot == 2 || slot == 4) << "slot " << slot;
  }
}

TEST_P(EmulatedStates, OffsetsPastTheRowsEndThere) {
  // On a GPU nobody has looked at the offsets.
  Prefill prefill(1, 130, 0x3c00, GetParam());
  const std::vector<int32_t> offsets = {0, 70, 110};
  for (TensorView* view : {&prefill.args.q, &prefill.args.k, &prefill.args.v, &prefill.args.o}) {
    view->shape[1] = 80;
  }
  prefill.args.cu_seqlens = on_gpu(offsets, kInt32, {3});
  prefill.run();
  for (size_t row = 0; row < 130; ++row) {
    EXPECT_EQ(prefill.o[row * kD] != 0, row < 80) << "row " << row;
  }
}

TEST_P(EmulatedStates, GatesPastTheRowsDoNotCount) {
  // Keys of zeros: what happens to the state is its decay.
  Prefill prefill(1, 130, 0, GetParam());
  const std::vector<int32_t> offsets = {0, 70, 110};
  std::vector<float> gates(130), initial(2 * kState, 1.0f), final(2 * kState);
  std::fill(gates.begin() + 80, gates.end(), -1.0f);
  for (TensorView* view : {&prefill.args.q, &prefill.args.k, &prefill.args.v, &prefill.args.o}) {
    view->shape[1] = 80;
  }
  prefill.args.gate = on_gpu(gates, kFloat32, {1, 80, 1});
  prefill.args.state.initial = on_gpu(initial, kFloat32, {2, 1, kD, kD});
  prefill.args.state.final = on_gpu(final, kFloat32, {2, 1, kD, kD});
  prefill.args.cu_seqlens = on_gpu(offsets, kInt32, {3});
  prefill.run();
  EXPECT_EQ(final[0], 1.0f);
  EXPECT_EQ(final[kState], 1.0f);
}

TEST_P(EmulatedStates, FlagsHaveStrides) {
  constexpr int64_t kN = 3;
  // Keys of zeros leave states as they are.
  Prefill prefill(kN, 3, 0, GetParam());
  std::vector<float> initial(kN * kState), final(kN * kState);
  for (size_t i = 0; i < initial.size(); ++i) initial[i] = static_cast<float>(i / kState + 1);
  const std::vector<uint8_t> flags = {1, 1, 0, 0, 1};
  prefill.args.state.initial = on_gpu(initial, kFloat32, {kN, 1, kD, kD});
  prefill.args.state.final = on_gpu(final, kFloat32, {kN, 1, kD, kD});
  prefill.args.state.has_initial_state = TensorView(flags.data(), kBool, {kN}, {2}, cuda_device());
  prefill.run();
  for (size_t n = 0; n < kN; ++n) {
    EXPECT_EQ(final[n * kState], n == 1 ? 0.0f : static_cast<float>(n + 1)) << "sequence " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EmulatedStates,
                         ::testing::Values(Rule::kGatedDelta, Rule::kLinearAttention),
                         [](const auto& test) {
                           return test.param == Rule::kGatedDelta ? "delta" : "linear";
                         });

}  // namespace
}  // namespace sluice::check
