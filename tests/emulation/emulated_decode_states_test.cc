// Measures which states an emulated step reads and writes, by a model of the tests' own: pads, strides
// of flags and slots, accepted columns, and sequences longer than their bound.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kD = 64, kState = kD * kD, kSlots = 8;

template <class T>
TensorView on_gpu(const std::vector<T>& memory, std::initializer_list<int64_t> shape,
                  std::initializer_list<int64_t> stride) {
  return TensorView(memory.data(), DTypeOf<T>::value, shape, stride, cuda_device());
}

/// N sequences of T tokens that change no state: k = 0. Every number of o is state[0,0].
struct Steps {
  std::vector<float> q, zeros, o, from, to;
  RecurrentStepArgs args;

  Steps(int64_t N, int64_t T)
      : q(static_cast<size_t>(N * T * kD)),
        zeros(q.size()),
        o(q.size(), -7.0f),
        from(kSlots * kState),
        to(from.size(), -7.0f) {
    for (size_t i = 0; i < q.size(); i += kD) q[i] = 1.0f;
    // Slot s holds s + 1.
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i / kState + 1);
    const auto rows = [&](const std::vector<float>& memory) {
      return on_gpu(memory, {N, T, 1, kD}, {T * kD, kD, kD, 1});
    };
    args.q = rows(q), args.k = args.v = rows(zeros), args.o = rows(o);
    args.scale = 1.0;
    args.state.initial = pool(from), args.state.final = pool(to);
    args.implementation = Implementation::kCuda;
  }
  static TensorView pool(const std::vector<float>& memory) {
    return on_gpu(memory, {kSlots, 1, kD, kD}, {kState, kState, kD, 1});
  }
  void run() {
    HostWorkspace memory;
    const Status status =
        recurrent_step(args, memory.reserve(workspace_size(args).value.bytes), nullptr);
    ASSERT_TRUE(status.ok()) << status.message;
  }
};

TEST(EmulatedDecodeStates, PadsFlagsAndStrides) {
  constexpr int64_t kN = 6;
  constexpr int kPadBelow = 2;
  // Every second entry counts. Slot 8 is past the pool.
  const std::vector<int32_t> read = {3, 6, 1, 6, 2, 6, 7, 6, 0, 6, 4, 6};
  const std::vector<int32_t> write = {5, 7, 6, 7, 1, 7, 2, 7, 3, 7, 8, 7};
  const std::vector<uint8_t> starts = {1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0};
  Steps steps(kN, 1);
  steps.args.state.read_slots = on_gpu(read, {kN}, {2});
  steps.args.state.write_slots = on_gpu(write, {kN}, {2});
  steps.args.state.has_initial_state = on_gpu(starts, {kN}, {2});
  steps.args.state.pad_below = kPadBelow;
  steps.to.resize((kSlots + 1) * kState, -7.0f);
  steps.args.state.final.data = steps.to.data();
  steps.run();
  std::vector<float> written(kSlots + 1, -7.0f);
  for (size_t n = 0; n < kN; ++n) {
    const auto slot = static_cast<size_t>(write[2 * n]);
    const bool padded = read[2 * n] < kPadBelow;
    const float state = padded || starts[2 * n] == 0 ? 0.0f : static_cast<float>(read[2 * n] + 1);
    EXPECT_EQ(steps.o[n * kD], state) << "sequence " << n;
    if (!padded && write[2 * n] >= kPadBelow && slot < kSlots) written[slot] = state;
  }
  for (size_t slot = 0; slot <= kSlots; ++slot) {
    EXPECT_EQ(steps.to[slot * kState], written[slot]) << "slot " << slot;
  }
}

TEST(EmulatedDecodeStates, TheAcceptedColumnIsTheStart) {
  // Two sequences of three columns; every second entry counts.
  const std::vector<int32_t> slots = {3, 7, 1, 7, 4, 7, 5, 7, 2, 7, 6, 7};
  for (int32_t accepted = -1; accepted <= 5; ++accepted) {
    const std::vector<int32_t> counts = {accepted, accepted};
    Steps steps(2, 1);
    steps.args.state.read_slots = on_gpu(slots, {2, 3}, {6, 2});
    steps.args.num_accepted = on_gpu(counts, {2}, {1});
    steps.args.state_writes = StateWrites::kNone;
    steps.args.state.final = {};
    steps.run();
    const int column = std::clamp(accepted, 1, 3) - 1;
    for (int n = 0; n < 2; ++n) {
      const auto slot = slots[static_cast<size_t>(6 * n + 2 * column)];
      EXPECT_EQ(steps.o[static_cast<size_t>(n * kD)], static_cast<float>(slot + 1)) << accepted;
    }
  }
}

TEST(EmulatedDecodeStates, ColumnsPastTheLastAreNotStored) {
  constexpr int64_t kV = 20, kRoom = 32;
  Steps steps(1, 1);
  steps.args.v = on_gpu(steps.zeros, {1, 1, 1, kV}, {kRoom, kRoom, kRoom, 1});
  steps.args.o = on_gpu(steps.o, {1, 1, 1, kV}, {kRoom, kRoom, kRoom, 1});
  steps.args.state.initial = on_gpu(steps.from, {kSlots, 1, kD, kV}, {kD * kV, kD * kV, kV, 1});
  steps.args.state.final = on_gpu(steps.to, {kSlots, 1, kD, kV}, {kD * kV, kD * kV, kV, 1});
  steps.run();
  for (size_t i = 0; i < kRoom; ++i) EXPECT_EQ(steps.o[i], i < kV ? 1.0f : -7.0f) << i;
}

TEST(EmulatedDecodeStates, SequencesAreCutToTheirBound) {
  // On a GPU nobody has looked at the offsets.
  const std::vector<int32_t> offsets = {0, 4};
  Steps steps(1, 4);
  steps.args.cu_seqlens = on_gpu(offsets, {2}, {1});
  steps.args.max_tokens = 2;
  steps.run();
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(steps.o[t * kD], t < 2 ? 1.0f : -7.0f) << t;
}

}  // namespace
}  // namespace sluice::check
