// Measures how recurrent_step rounds 16-bit states: every bfloat16 pattern as an element of a state
// that one step multiplies by alpha, for decays that leave it alone, make ties, and make longer
// fractions. The expected bits come from integer arithmetic on the exact product.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kHeads = 4, kDim = 128;  // 65536 elements

/// To nearest even; NaN keeps its upper bits and becomes quiet.
uint16_t bfloat16_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  const uint32_t upper = bits >> 16, rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (upper & 1) != 0);
  return static_cast<uint16_t>(upper + (up ? 1 : 0));
}

float float_of(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// One step of linear attention with k = 0 and v = -1: S <- alpha S + 0 (-1), whose sum of zeros
/// keeps the sign of S.
Status decay(float alpha, StateLayout layout, std::vector<uint16_t>* states) {
  const std::vector<float> zeros(kHeads * kDim, 0.0f), ones(kHeads * kDim, -1.0f);
  const std::vector<float> gates(kHeads, alpha);
  std::vector<float> o(kHeads * kDim);
  RecurrentStepArgs args;
  args.q = TensorView(zeros.data(), {1, 1, kHeads, kDim});
  args.k = args.q;
  args.v = TensorView(ones.data(), {1, 1, kHeads, kDim});
  args.gate = TensorView(gates.data(), {1, 1, kHeads});
  args.gate_space = GateSpace::kLinear;
  args.rule = Rule::kLinearAttention;
  args.o = TensorView(o.data(), {1, 1, kHeads, kDim});
  args.state.initial = TensorView(states->data(), kBFloat16, {1, kHeads, kDim, kDim});
  args.state.layout = layout;
  args.implementation = Implementation::kCpu;
  const Result<WorkspaceSize> size = workspace_size(args);
  if (!size.ok()) return size.status;
  HostWorkspace memory;
  return recurrent_step(args, memory.reserve(size.value.bytes));
}

class StepRounding : public ::testing::TestWithParam<float> {};

TEST_P(StepRounding, EveryBfloat16) {
  const float alpha = GetParam();
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    std::vector<uint16_t> states(1 << 16);
    // WHY scattered: whole vectors of NaN or of subnormals would hide what a single lane does.
    for (uint32_t i = 0; i < states.size(); ++i) states[i] = static_cast<uint16_t>(i * 40503u);
    const std::vector<uint16_t> before = states;
    const Status status = decay(alpha, layout, &states);
    ASSERT_TRUE(status.ok()) << status.message;
    for (size_t i = 0; i < states.size(); ++i) {
      // Exact: 8 bits times at most 9, and the smallest subnormals have 16 bits to spare.
      const uint16_t expected = bfloat16_bits(alpha * float_of(before[i]));
      ASSERT_EQ(states[i], expected)
          << "element " << i << ", was " << before[i] << ", layout " << static_cast<int>(layout);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Decays, StepRounding, ::testing::Values(1.0f, 0.75f, 0.998046875f));

}  // namespace
}  // namespace sluice::check
