// Runs layer_prefill and the gated norm of the CUDA backend on the CPU where the parity suite
// beside it does not go: the layout that the fused delta rule kernel asks for, chunked prefill,
// core_out in every dtype, padded rows of NaN, workspaces of any content. Bits are compared
// throughout.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "check/comparer.hpp"
#include "emulated_backend.hpp"
#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"

namespace sluice::check {
namespace {

/// What the one-launch kernel takes, of the smallest size.
LayerConfig fused(const std::string& name) {
  LayerConfig c{.name = name, .B = 1, .H = 1, .HV = 2, .K = 64, .V = 64};
  c.io = c.out = c.core = c.conv_state = kBF16;
  return c;
}

std::vector<LayerConfig> configs() {
  std::vector<LayerConfig> all;
  for (const auto packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED}) {
    const std::string tail = packing == SLUICE_PACKING_FLAT ? "_flat" : "_interleaved";
    const auto add = [&](const std::string& name, auto change) {
      LayerConfig c = fused(name + tail);
      c.packing = packing;
      change(c);
      all.push_back(c);
    };
    add("batch", [](LayerConfig& c) { c.B = 2, c.T = 7; });
    add("half", [](LayerConfig& c) { c.io = c.out = c.core = c.conv_state = kF16, c.T = 5; });
    add("packed", [](LayerConfig& c) {
      c.packed = true, c.lengths = {1, 0, 5, 2, 9}, c.rows_past_end = 3, c.padded = {3};
      c.fresh = {2}, c.rounding = SLUICE_NORM_ROUND_HF;
    });
    add("core_float32", [](LayerConfig& c) { c.core = kF32, c.B = 2, c.padded = {0}; });
    add("core_strided", [](LayerConfig& c) { c.wild = true; });
    add("out_float32", [](LayerConfig& c) {
      c.out = kF32, c.rounding = SLUICE_NORM_ROUND_INPUT, c.V = 128, c.K = 128;
    });
    add("no_states", [](LayerConfig& c) { c.states = false, c.V = 256; });
    add("ring", [](LayerConfig& c) { c.form = SLUICE_CONV_STATE_RING, c.L = 4, c.W = 3; });
  }
  return all;
}

class EmulatedLayer : public ::testing::TestWithParam<LayerConfig> {};

TEST_P(EmulatedLayer, MatchesReference) {
  const LayerConfig& c = GetParam();
  const LayerResult truth = run_layer(c, SLUICE_IMPL_REFERENCE);
  ASSERT_EQ(truth.code, SLUICE_OK) << truth.message;
  const LayerResult found = run_layer(c, SLUICE_IMPL_CUDA);
  EXPECT_EQ(found.kernel, "cuda.layer_prefill.sm_90a");
  const Verdict verdict = judge_layer(c, found, truth);
  EXPECT_TRUE(verdict.pass) << verdict.line;
}

TEST_P(EmulatedLayer, NeitherWorkspaceNorOrderNorCoreOutputMatter) {
  LayerConfig c = GetParam();
  const LayerResult first = run_layer(c, SLUICE_IMPL_CUDA);
  for (const int fill : {0, 0x7f}) {
    cuda::emulation_seed += 17;
    c.has_core = fill == 0;
    const LayerResult found = run_layer(c, SLUICE_IMPL_CUDA, fill);
    EXPECT_TRUE(same_bits(found.out, first.out));
    EXPECT_TRUE(same_bits(found.state_initial, first.state_initial));
    EXPECT_TRUE(same_bits(found.conv_initial, first.conv_initial));
    if (c.has_core) {
      EXPECT_TRUE(same_bits(found.core, first.core));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fused, EmulatedLayer, ::testing::ValuesIn(configs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::check
