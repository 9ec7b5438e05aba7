// Runs the decode kernel's own source on whole layer steps, CTAs and warps in random order and some
// of them late: several CTAs of a unit read the convolution columns that they then replace. No bit
// may depend on the order, on how a unit is cut up, or on what else is in the batch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "emulated_decode_backend.hpp"
#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/ring_layer_session.hpp"
#include "parity/sequences.hpp"
#include "parity/single_layers.hpp"

namespace sluice::check {
namespace {

using cuda::decode_emulation;

LayerConfig model(const std::string& name) {
  LayerConfig c{.name = name, .op = SLUICE_OP_LAYER_DECODE, .B = 2, .T = 1};
  c.H = 1, c.HV = 2, c.K = 64, c.V = 64;
  c.io = c.out = c.core = c.conv_state = kBF16;
  return c;
}

std::vector<LayerConfig> configs() {
  std::vector<LayerConfig> all;
  for (const auto packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED}) {
    const std::string tail = packing == SLUICE_PACKING_FLAT ? "_flat" : "_interleaved";
    const auto add = [&](const std::string& name, auto change) {
      LayerConfig c = model(name + tail);
      c.packing = packing;
      change(c);
      all.push_back(c);
    };
    add("model", [](LayerConfig& c) { c.K = c.V = 128, c.H = 2, c.HV = 4; });
    add("r4_shift", [](LayerConfig& c) { c.HV = 4, c.T = 3, c.L = 4; });
    add("r3_ring", [](LayerConfig& c) {
      c.HV = 3, c.form = SLUICE_CONV_STATE_RING, c.L = 3, c.T = 2, c.layout = SLUICE_STATE_VK;
    });
    add("two_pools", [](LayerConfig& c) {
      c.in_place = false, c.form = SLUICE_CONV_STATE_RING, c.L = 5, c.state = kF16;
    });
    add("pads", [](LayerConfig& c) {
      c.B = 4, c.padded = {0, 3}, c.fresh = {2}, c.rounding = SLUICE_NORM_ROUND_HF;
    });
    add("packed", [](LayerConfig& c) {
      c.packed = true, c.lengths = {1, 0, 4, 2}, c.rows_past_end = 2, c.state = kBF16;
      c.rounding = SLUICE_NORM_ROUND_INPUT, c.HV = 1, c.V = 128;
    });
    add("speculative", [](LayerConfig& c) {
      c.T = 4, c.num_accepted = true, c.columns = 4, c.L = 6, c.slots = Slots::kShared;
      c.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
    });
  }
  for (const sluice_dtype io : {kBF16, kF16}) {
    for (const int64_t L : {3, 4}) {
      // What conv_pairs.cuh takes; with T = 3 rows that outlast the CTA, and an empty sequence.
      LayerConfig c = model(named("pairs_", dtype_name(io), "_L", L));
      c.io = c.out = c.parameters = c.conv_state = io, c.L = L, c.HV = L == 3 ? 2 : 4;
      c.packed = L == 4, c.lengths = {3, 0, 1}, c.fresh = {2};
      c.in_place = L == 3, c.has_bias = L == 3, c.state = io;
      all.push_back(c);
      c.name += "_outside", c.conv_outside = true;
      c.packed = !c.packed;
      all.push_back(c);
    }
  }
  LayerConfig cyclic = model("cyclic");
  cyclic.H = 2, cyclic.HV = 6, cyclic.head_map = SLUICE_HEAD_MAP_CYCLIC, cyclic.K = 32;
  all.push_back(cyclic);
  return all;
}

class EmulatedLayerDecode : public ::testing::TestWithParam<LayerConfig> {};

TEST_P(EmulatedLayerDecode, NeitherOrderNorSplitMatter) {
  const LayerConfig& c = GetParam();
  const LayerResult truth = run_layer(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  LayerResult first;
  int most = 0;
  for (const int multiprocessors : {1, 3, 100, 100, 100}) {
    decode_emulation.multiprocessors = multiprocessors;
    decode_emulation.seed += 1000;
    const LayerResult found = run_layer(c, SLUICE_IMPL_CUDA);
    EXPECT_NE(found.kernel.find("layer_decode.sm_90a"), std::string::npos) << found.kernel;
    const Verdict verdict = judge_layer(c, found, truth);
    ASSERT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
    if (most == 0) first = found;
    EXPECT_TRUE(same_bits(found.out, first.out));
    EXPECT_TRUE(same_bits(found.core, first.core));
    EXPECT_TRUE(same_bits(found.state_initial, first.state_initial));
    EXPECT_TRUE(same_bits(found.conv_initial, first.conv_initial));
    EXPECT_TRUE(same_bits(found.state, first.state));
    EXPECT_TRUE(same_bits(found.conv, first.conv));
    most = std::max(most, decode_emulation.ctas_of_unit);
  }
  EXPECT_GE(most, 4);
}

class EmulatedSingleLayerDecode : public ::testing::TestWithParam<LayerConfig> {};

/// Single tokens have a kernel of their own; the one for all takes them as a packed row.
TEST_P(EmulatedSingleLayerDecode, HasTheBitsOfTheKernelForAll) {
  LayerConfig c = GetParam();
  const LayerResult truth = run_layer(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  std::vector<LayerResult> all;
  for (int run = 0; run < 4; ++run) {
    decode_emulation.seed += 1000;
    decode_emulation.late_slots = run % 2 == 1;
    if (run == 3) c.packed = true, c.lengths = std::vector<int64_t>(4, 1);
    all.push_back(run_layer(c, SLUICE_IMPL_CUDA));
    decode_emulation.late_slots = false;
    LayerResult& found = all.back();
    EXPECT_EQ(found.kernel,
              c.packed ? "cuda.layer_decode.sm_90a.k128" : "cuda.layer_decode.sm_90a.single_k128");
    if (!c.packed) {
      EXPECT_EQ(decode_emulation.ctas_of_unit, c.HV / c.H);
      const Verdict verdict = judge_layer(c, found, truth);
      ASSERT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
    }
    found.out.shape = all[0].out.shape, found.core.shape = all[0].core.shape;
    EXPECT_TRUE(same_bits(found.out, all[0].out));
    EXPECT_TRUE(same_bits(found.core, all[0].core));
    EXPECT_TRUE(same_bits(found.state_initial, all[0].state_initial));
    EXPECT_TRUE(same_bits(found.conv_initial, all[0].conv_initial));
    EXPECT_TRUE(same_bits(found.state, all[0].state));
    EXPECT_TRUE(same_bits(found.conv, all[0].conv));
  }
}

/// The same of a replay ring, several calls in a row, and in one launch each.
TEST(EmulatedReplayRingLayer, NeitherOrderNorSplitMatter) {
  for (const auto form : {SLUICE_CONV_STATE_RING, SLUICE_CONV_STATE_SHIFT}) {
    RingLayerModel model{.name = "", .HV = 2, .K = 128, .V = 96, .L = 10, .io = kBF16};
    model.form = form;
    std::vector<Array> first;
    for (const int multiprocessors : {1, 100, 100}) {
      decode_emulation.multiprocessors = multiprocessors;
      decode_emulation.seed += 1000;
      decode_emulation.launches = 0;
      RingLayerSession session(model, 1, SLUICE_IMPL_CUDA);
      const bool is_first = first.empty();
      for (uint64_t call = 0; call < 5; ++call) {
        const Array out = session.run(LayerTokens(model, 1, 4, 50 * call), {0});
        EXPECT_EQ(session.kernel, "cuda.layer_decode.sm_90a.replay_k128");
        EXPECT_EQ(decode_emulation.trouble, "");
        if (is_first) first.push_back(out);
        EXPECT_TRUE(same_bits(out, first[call])) << call;
        session.accept(0, 1 + static_cast<int64_t>(call) % 4);
      }
      EXPECT_EQ(decode_emulation.launches, 5);
      for (const TestTensor* pool : {&session.pool, &session.conv, &session.deltas}) {
        if (is_first) first.push_back(pool->values());
      }
      EXPECT_TRUE(same_bits(session.pool.values(), first[5]));
      EXPECT_TRUE(same_bits(session.conv.values(), first[6]));
      EXPECT_TRUE(same_bits(session.deltas.values(), first[7]));
      EXPECT_EQ(decode_emulation.ctas_of_unit, multiprocessors == 1 ? 2 : 6);
    }
  }
}

/// Single tokens of KDA layers: a gate for each row of a state, q, k and v apart or packed.
TEST_P(EmulatedSingleLayerDecode, TakesKeyGates) {
  LayerConfig c = GetParam();
  c.packing = c.H == c.HV ? SLUICE_PACKING_SEPARATE : SLUICE_PACKING_FLAT;
  c.key_gates = true;
  for (const double bound : {0.0, -5.0}) {
    c.gate_lower_bound = bound, c.has_rates = bound == 0 || c.in_place;
    const LayerResult truth = run_layer(c, SLUICE_IMPL_REFERENCE);
    ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
    decode_emulation.seed += 1000;
    decode_emulation.late_slots = bound != 0;
    const LayerResult found = run_layer(c, SLUICE_IMPL_CUDA);
    decode_emulation.late_slots = false;
    EXPECT_EQ(found.kernel, "cuda.layer_decode.sm_90a.single_k128.key_gates");
    const Verdict verdict = judge_layer(c, found, truth);
    EXPECT_TRUE(verdict.pass) << verdict.line << decode_emulation.trouble;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, EmulatedLayerDecode, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Layers, EmulatedSingleLayerDecode, ::testing::ValuesIn(single_layers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
