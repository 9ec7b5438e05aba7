// Checks that convolutions and layers take slots past a pool for padding.
// SPDX-License-Identifier: Apache-2.0
#include "parity/conv_call.hpp"
#include "parity/far_slots.hpp"
#include "parity/layer_call.hpp"

namespace sluice::check {
namespace {

using FarConv = FarSlots<ConvConfig>;
using FarLayer = FarSlots<LayerConfig>;

FarConv conv(const std::string& name) {
  ConvConfig c{.name = name};
  c.B = 5, c.T = 9, c.D = 128, c.x = c.out = c.weight = c.bias = kBF16;
  c.slots = Slots::kSeparate, c.pad_below = 1;
  // Indices past the pool are the first one in even rows, the largest in odd ones.
  c.padded = {0, 3}, c.padded_writes = {1, 4}, c.fresh = {2};
  return {c, "causal_conv1d"};
}

std::vector<FarConv> convolutions() {
  std::vector<FarConv> all{conv("rows"),   conv("update"),   conv("channel_first"),
                           conv("packed"), conv("any_form"), conv("in_place")};
  all[1].config.T = 1;
  all[2].config.channel_first = true;
  all[3].config.packed = true, all[3].config.lengths = {4, 9, 1, 5, 30};
  all[4].config.D = 23, all[4].config.x = kF32, all[4].config.index = kI64;
  all[5].config.in_place = true, all[5].config.slots = Slots::kRead;
  all[5].config.padded_writes = {};
  return all;
}

class FarSlotsConv : public ::testing::TestWithParam<FarConv> {};

TEST_P(FarSlotsConv, ArePadding) {
  expect_padding(
      GetParam(), [](const auto& c, auto implementation) { return run_conv(c, implementation); },
      [](const auto& c, const auto& found, const auto& truth) {
        return judge_conv(c, found, truth);
      },
      [](const ConvResult& r) { return std::vector<Array>{r.out, r.initial, r.final}; });
}

INSTANTIATE_TEST_SUITE_P(CausalConv1d, FarSlotsConv, ::testing::ValuesIn(convolutions()),
                         far_slots_name<ConvConfig>);

FarLayer layer(const std::string& name, sluice_op op) {
  LayerConfig c{.name = name};
  c.op = op, c.B = 5, c.T = 1, c.H = 2, c.HV = 4, c.K = c.V = 128;
  c.io = c.parameters = c.out = c.core = c.conv_state = kBF16;
  c.slots = Slots::kShared, c.pad_below = 1;
  c.padded = {0, 3}, c.fresh = {2};
  return {c, op == SLUICE_OP_LAYER_DECODE ? "layer_decode" : "layer_prefill"};
}

std::vector<FarLayer> layers() {
  std::vector<FarLayer> all{
      layer("prefill", SLUICE_OP_LAYER_PREFILL), layer("decode_single", SLUICE_OP_LAYER_DECODE),
      layer("decode_tokens", SLUICE_OP_LAYER_DECODE), layer("decode_any", SLUICE_OP_LAYER_DECODE)};
  all[0].config.T = 70;
  all[1].config.slots = Slots::kRead;
  all[2].config.T = 3;
  all[3].config.T = 3, all[3].config.K = 24, all[3].config.V = 16, all[3].config.in_place = false;
  return all;
}

class FarSlotsLayer : public ::testing::TestWithParam<FarLayer> {};

TEST_P(FarSlotsLayer, ArePadding) {
  expect_padding(
      GetParam(), [](const auto& c, auto implementation) { return run_layer(c, implementation); },
      [](const auto& c, const auto& found, const auto& truth) {
        return judge_layer(c, found, truth);
      },
      [](const LayerResult& r) {
        return std::vector<Array>{r.out, r.core, r.state_initial, r.state, r.conv_initial, r.conv};
      });
}

INSTANTIATE_TEST_SUITE_P(Layer, FarSlotsLayer, ::testing::ValuesIn(layers()),
                         far_slots_name<LayerConfig>);

}  // namespace
}  // namespace sluice::check
